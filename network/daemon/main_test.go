package daemon

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/mnicloud/mnicloud/network/plugin"
	"github.com/mnicloud/mnicloud/test/isolate"
)

// optionsEnv makes the test's binary a daemon; called by the plugin's name it is the plugin. So both run as processes of their
// own, as they do in the field.
const optionsEnv = "MNI_TEST_NETD_OPTIONS"

func TestMain(m *testing.M) {
	if filepath.Base(os.Args[0]) == plugin.Type {
		plugin.Main()
		return
	}
	if encoded := os.Getenv(optionsEnv); encoded != "" {
		if err := runDaemon(encoded); err != nil {
			fmt.Fprintln(os.Stderr, "daemon:", err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	isolate.Main(m)
}

func runDaemon(encoded string) error {
	var options Options
	if err := json.Unmarshal([]byte(encoded), &options); err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	log := slog.New(slog.NewTextHandler(os.Stderr, nil)).With("node", options.NodeName)
	return Run(ctx, options, log)
}
