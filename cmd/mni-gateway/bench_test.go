package main

import (
	"bufio"
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	authv1 "github.com/mnicloud/mnicloud/services/auth/api/v1alpha1"
	"github.com/mnicloud/mnicloud/test/apiserver"
)

// BenchmarkLatencyOverTheAPIServer times the same requests in turn: to the API server with every right, to it as the User whom the gateway would speak
// for, and through the gateway. What the second takes more is the API server's own: who may speak for whom, and who may what.
func BenchmarkLatencyOverTheAPIServer(b *testing.B) {
	p := start(b)
	for i := range 20 {
		code, body := p.send(http.MethodPost, vpcsOf("bench"), p.login, fmt.Sprintf(`{"apiVersion":"vpc.mnicloud.jp/v1alpha1","kind":"Vpc","metadata":{"name":"v-%d"},"spec":{"cidr":"10.0.0.0/16"}}`, i))
		require.Equal(b, 201, code, body)
	}
	const bare, spokenFor, gateway = 0, 1, 2
	ways := [...]way{bare: p.straight(b, apiserver.Shared(b)), spokenFor: p.straight(b, p.asAda()), gateway: {p.web, p.url + vpcsOf("bench"), p.login}}
	for _, request := range []struct{ name, method, below string }{{"get", http.MethodGet, "/v-0"}, {"list of 20", http.MethodGet, ""}, {"patch", http.MethodPatch, "/v-1"}} {
		b.Run(request.name, func(b *testing.B) {
			var took [len(ways)][]time.Duration
			over := make([]time.Duration, b.N)
			for i := range b.N {
				for turn := range ways {
					which := (i + turn) % len(ways)
					body := ""
					if request.method == http.MethodPatch {
						body = fmt.Sprintf(`{"metadata":{"labels":{"n":"%d-%d"}}}`, i, which)
					}
					took[which] = append(took[which], ways[which].ask(b, request.method, request.below, body))
				}
				over[i] = took[gateway][i] - took[bare][i]
			}
			for which, name := range []string{"bare", "spoken-for", "gateway"} {
				b.ReportMetric(milliseconds(took[which], 50), name+"-p50-ms")
				b.ReportMetric(milliseconds(took[which], 99), name+"-p99-ms")
			}
			b.ReportMetric(milliseconds(over, 50), "over-p50-ms")
			b.ReportMetric(milliseconds(took[gateway], 99)-milliseconds(took[bare], 99), "over-p99-ms")
		})
	}
}

// way is how Vpcs are asked for: by whom, where they are, with which token.
type way struct {
	web        *http.Client
	url, token string
}

// straight is the way to the API server.
func (p *program) straight(b *testing.B, config *rest.Config) way {
	b.Helper()
	web, err := rest.HTTPClientFor(config)
	require.NoError(b, err)
	return way{web: web, url: strings.TrimSuffix(config.Host, "/") + vpcsOf(p.namespaceOf("bench"))}
}

// asAda are the rights of the command when it speaks for ada.
func (p *program) asAda() *rest.Config {
	p.t.Helper()
	ada, bench := &authv1.User{}, &authv1.Tenant{}
	require.NoError(p.t, p.Get(p.t.Context(), client.ObjectKey{Name: "ada"}, ada))
	require.NoError(p.t, p.Get(p.t.Context(), client.ObjectKey{Name: "bench"}, bench))
	config := rest.CopyConfig(p.own)
	config.Impersonate = rest.ImpersonationConfig{UserName: authv1.UserName("ada"), Groups: []string{
		authv1.GroupUsers, authv1.GroupOfUser(ada.UID), authv1.GroupOf(p.red.UID, authv1.RoleViewer), authv1.GroupOf(bench.UID, authv1.RoleMember),
	}}
	return config
}

// ask sends a request and says how long the answer took.
func (w way) ask(b *testing.B, method, below, body string) time.Duration {
	b.Helper()
	r, err := http.NewRequestWithContext(b.Context(), method, w.url+below, strings.NewReader(body))
	require.NoError(b, err)
	r.Header.Set("Accept", "application/json")
	if body != "" {
		r.Header.Set("Content-Type", "application/merge-patch+json")
	}
	if w.token != "" {
		r.Header.Set("Authorization", "Bearer "+w.token)
	}
	began := time.Now()
	response, err := w.web.Do(r)
	require.NoError(b, err)
	_, err = io.Copy(io.Discard, response.Body)
	took := time.Since(began)
	require.NoError(b, errors.Join(err, response.Body.Close()))
	require.Equal(b, 200, response.StatusCode)
	return took
}

func milliseconds(of []time.Duration, percentile int) float64 {
	sorted := slices.Sorted(slices.Values(of))
	return float64(sorted[len(sorted)*percentile/100].Microseconds()) / 1000
}

// BenchmarkTenThousandWatchers opens that many watches through the gateway, makes an object, and tells what the gateway's process needs
// for them and after how long the last of them has the news.
func BenchmarkTenThousandWatchers(b *testing.B) {
	const watchers, connections = 10000, 50
	p := start(b)
	pool := x509.NewCertPool()
	require.True(b, pool.AppendCertsFromPEM(p.authority))
	ctx, cancel := context.WithCancel(b.Context())
	defer cancel()
	var got atomic.Int64
	failed := make(chan error, watchers)
	watch := func(client *http.Client, from string) {
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, p.url+vpcsOf("bench")+"?watch=1&resourceVersion="+from, nil)
		require.NoError(b, err)
		r.Header.Set("Authorization", "Bearer "+p.login)
		response, err := client.Do(r) //nolint:bodyclose // closed by its reader
		require.NoError(b, err)
		require.Equal(b, 200, response.StatusCode)
		go func() {
			defer response.Body.Close()
			for lines := bufio.NewReaderSize(response.Body, 512); ; {
				line, err := lines.ReadSlice('\n')
				if err != nil && ctx.Err() == nil && !errors.Is(err, bufio.ErrBufferFull) {
					failed <- err
				}
				if errors.Is(err, bufio.ErrBufferFull) {
					continue
				}
				if err != nil {
					return
				}
				if len(line) > 0 {
					got.Add(1)
				}
			}
		}()
	}
	list := func() string {
		_, body := p.send(http.MethodGet, vpcsOf("bench"), p.login, "")
		_, after, _ := strings.Cut(body, `"resourceVersion":"`)
		version, _, _ := strings.Cut(after, `"`)
		return version
	}
	watch(browser(pool), list()) // the shared one begins
	<-time.After(2 * time.Second)
	before := p.resident()
	from, began := list(), time.Now()
	for range connections {
		client := browser(pool)
		for range watchers / connections {
			watch(client, from)
		}
	}
	b.ReportMetric(time.Since(began).Seconds(), "open-s")
	b.ReportMetric(float64(p.resident()-before)/watchers/1024, "KiB/watcher")
	b.ReportMetric(float64(p.resident())/(1<<20), "MiB")
	var slowest time.Duration
	for i := range 3 {
		got.Store(0)
		began := time.Now()
		code, body := p.send(http.MethodPost, vpcsOf("bench"), p.login, fmt.Sprintf(`{"apiVersion":"vpc.mnicloud.jp/v1alpha1","kind":"Vpc","metadata":{"name":"n-%d"},"spec":{"cidr":"10.0.0.0/16"}}`, i))
		require.Equal(b, 201, code, body)
		for got.Load() < watchers {
			select {
			case err := <-failed:
				b.Fatal(err)
			case <-time.After(time.Millisecond):
			}
			require.Less(b, time.Since(began), patience)
		}
		slowest = max(slowest, time.Since(began))
	}
	b.ReportMetric(slowest.Seconds()*1000, "ms-to-the-last")
	b.ReportMetric(float64(p.resident())/(1<<20), "MiB-after")
}
