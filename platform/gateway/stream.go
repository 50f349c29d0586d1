package gateway

import (
	"errors"
	"net/http"
	"net/http/httputil"
	"net/url"
	"time"
)

// streamHeaders are the headers that a stream's client and the API server agree by.
var streamHeaders = []string{
	"Connection", "Upgrade", "X-Stream-Protocol-Version", "Sec-Websocket-Key", "Sec-Websocket-Version", "Sec-Websocket-Protocol",
	"Sec-Websocket-Extensions", "Origin", "User-Agent",
}

// stream joins the client and the API server: a workload's output, a command in it, a port of it.
func (q *call) stream() {
	upgrade := q.r.Header.Get("Upgrade") != ""
	if upgrade == (q.target.subresource == "log") {
		q.refuse(badRequest("", "%s: the request must %s another protocol", q.target.resource(), map[bool]string{true: "not ask for", false: "ask for"}[upgrade]))
		return
	}
	ctx, cancel := q.whileKnown()
	defer cancel()
	out := newOutbound(q.target, q.id)
	proxy := &httputil.ReverseProxy{
		Transport:     q.upstream.streams,
		FlushInterval: -1,
		Rewrite: func(p *httputil.ProxyRequest) {
			header := http.Header{}
			for _, name := range streamHeaders {
				if values := p.Out.Header.Values(name); len(values) > 0 {
					header[name] = values
				}
			}
			header.Set("Accept", "*/*")
			header.Del("Origin")
			q.id.impersonate(header)
			p.Out.Header = header
			p.Out.URL = &url.URL{Scheme: q.upstream.base.Scheme, Host: q.upstream.base.Host, Path: q.target.path(), RawQuery: q.query.Encode()}
			p.Out.Host = ""
			p.Out.Body, p.Out.ContentLength = http.NoBody, 0
		},
		ModifyResponse: func(response *http.Response) error {
			if response.StatusCode < http.StatusBadRequest {
				q.recorded.began(response.StatusCode)
			}
			if response.StatusCode == http.StatusSwitchingProtocols {
				return nil
			}
			return q.modify(response, out)
		},
		ErrorHandler: func(_ http.ResponseWriter, _ *http.Request, err error) {
			if refused := new(refusal); errors.As(err, &refused) {
				q.recorded.refused(int(refused.status.Code), refused.status.Reason)
				writeStatus(q.w, q.r, refused.status)
				return
			}
			q.failed(err)
		},
	}
	control := http.NewResponseController(q.w)
	if err := control.SetReadDeadline(time.Time{}); err != nil && !errors.Is(err, http.ErrNotSupported) {
		q.failed(err)
		return
	}
	proxy.ServeHTTP(q.w, q.r.WithContext(ctx))
}
