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

	"github.com/mnicloud/mnicloud/test/apiserver"
)

// BenchmarkLatencyOverTheAPIServer times the same requests, one to the API server and one through the gateway, in turn.
func BenchmarkLatencyOverTheAPIServer(b *testing.B) {
	p := start(b)
	direct := apiserver.Shared(b)
	bare, err := rest.HTTPClientFor(direct)
	require.NoError(b, err)
	for i := range 20 {
		code, body := p.send(http.MethodPost, vpcsOf("bench"), p.login, fmt.Sprintf(`{"apiVersion":"vpc.mnicloud.jp/v1alpha1","kind":"Vpc","metadata":{"name":"v-%d"},"spec":{"cidr":"10.0.0.0/16"}}`, i))
		require.Equal(b, 201, code, body)
	}
	namespace := p.namespaceOf("bench")
	ask := func(client *http.Client, method, url, token, body string) time.Duration {
		r, err := http.NewRequestWithContext(b.Context(), method, url, strings.NewReader(body))
		require.NoError(b, err)
		r.Header.Set("Accept", "application/json")
		if body != "" {
			r.Header.Set("Content-Type", "application/merge-patch+json")
		}
		if token != "" {
			r.Header.Set("Authorization", "Bearer "+token)
		}
		began := time.Now()
		response, err := client.Do(r)
		require.NoError(b, err)
		_, err = io.Copy(io.Discard, response.Body)
		took := time.Since(began)
		require.NoError(b, errors.Join(err, response.Body.Close()))
		require.Equal(b, 200, response.StatusCode)
		return took
	}
	for _, request := range []struct{ name, method, below string }{{"get", http.MethodGet, "/v-0"}, {"list of 20", http.MethodGet, ""}, {"patch", http.MethodPatch, "/v-1"}} {
		b.Run(request.name, func(b *testing.B) {
			var through, straight, over []time.Duration
			for i := range b.N {
				body := ""
				if request.method == http.MethodPatch {
					body = fmt.Sprintf(`{"metadata":{"labels":{"n":"%d"}}}`, i)
				}
				pair := map[bool]time.Duration{}
				for _, gateway := range []bool{i%2 == 0, i%2 != 0} {
					if gateway {
						pair[true] = ask(p.web, request.method, p.url+vpcsOf("bench")+request.below, p.login, strings.Replace(body, "n", "g", 1))
						continue
					}
					pair[false] = ask(bare, request.method, strings.TrimSuffix(direct.Host, "/")+vpcsOf(namespace)+request.below, "", body)
				}
				through, straight, over = append(through, pair[true]), append(straight, pair[false]), append(over, pair[true]-pair[false])
			}
			for name, of := range map[string][]time.Duration{"gateway": through, "bare": straight} {
				b.ReportMetric(milliseconds(of, 50), name+"-p50-ms")
				b.ReportMetric(milliseconds(of, 99), name+"-p99-ms")
			}
			b.ReportMetric(milliseconds(over, 50), "over-p50-ms")
			b.ReportMetric(milliseconds(through, 99)-milliseconds(straight, 99), "over-p99-ms")
		})
	}
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
