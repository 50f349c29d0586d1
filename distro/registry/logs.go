package registry

import (
	"context"
	"io"
	"log/slog"
	"strings"

	"github.com/sirupsen/logrus"
)

// routeLibraryLogs sends what is worth reading of distribution's log, which is the process-wide logrus logger, to log.
func routeLibraryLogs(log *slog.Logger) {
	logger := logrus.StandardLogger()
	logger.SetOutput(io.Discard)
	logger.SetLevel(logrus.WarnLevel)
	logger.ReplaceHooks(logrus.LevelHooks{})
	logger.AddHook(libraryLog{log})
}

// libraryLog forwards logrus entries to slog, except the requests that clients make all day: unauthenticated first
// attempts and lookups of what is not there.
type libraryLog struct{ log *slog.Logger }

// Levels implements logrus.Hook.
func (libraryLog) Levels() []logrus.Level {
	return []logrus.Level{logrus.PanicLevel, logrus.FatalLevel, logrus.ErrorLevel, logrus.WarnLevel}
}

// Fire implements logrus.Hook.
func (l libraryLog) Fire(entry *logrus.Entry) error {
	if strings.HasPrefix(entry.Message, "error authorizing context") {
		return nil
	}
	attrs := []any{}
	if entry.Message == "response completed with error" {
		status, ok := entry.Data["http.response.status"].(int)
		if ok && status < 500 {
			return nil
		}
		attrs = append(attrs, "status", status, "method", entry.Data["http.request.method"], "uri", entry.Data["http.request.uri"],
			"error", entry.Data["err.detail"])
	}
	level := slog.LevelError
	if entry.Level == logrus.WarnLevel {
		level = slog.LevelWarn
	}
	l.log.Log(context.Background(), level, "registry: "+entry.Message, attrs...)
	return nil
}
