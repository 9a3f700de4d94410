package step

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	gwebsocket "github.com/gorilla/websocket"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/remotecommand"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/transport/spdy"
	"k8s.io/client-go/transport/websocket"
	"k8s.io/streaming/pkg/httpstream"
)

// command is what is run, and where.
type command struct {
	namespace, pod, container string
	args                      []string
	stdin                     string
}

// String is where the command is run.
func (c command) String() string { return fmt.Sprintf("container %s of pod %s", c.container, c.pod) }

// streamed is what came of a command: an exit code, or an error.
type streamed struct {
	stdout, stderr output
	exitCode       int
	err            error
}

// output keeps the first MaxRead bytes of what is written to it.
type output struct {
	data []byte
	// more: there was more.
	more bool
}

// Write implements io.Writer.
func (o *output) Write(p []byte) (int, error) {
	n := min(len(p), MaxRead-len(o.data))
	o.data = append(o.data, p[:n]...)
	o.more = o.more || n < len(p)
	return len(p), nil
}

func (o *output) text() string { return strings.ToValidUTF8(string(o.data), "�") }

// brokenError is what the server said of a command that came to no exit code.
type brokenError struct{ message string }

// Error implements error.
func (b *brokenError) Error() string { return b.message }

// errNoStatus: the connection ended, and nobody said how the command did. The executors of client-go take that for a success.
var errNoStatus = errors.New("the connection ended before the command did")

// stream runs a command, over a WebSocket or, with servers that have none for it, over SPDY.
func (e *Executor) stream(ctx context.Context, c command) streamed {
	u, err := execURL(e.options.Client.Config, c)
	if err != nil {
		return streamed{err: err}
	}
	out := e.streamWebSocket(ctx, u, c)
	if out.err != nil && httpstream.IsUpgradeFailure(out.err) {
		out = e.streamSPDY(ctx, u, c)
	}
	return out
}

func execURL(base *rest.Config, c command) (*url.URL, error) {
	cfg := rest.CopyConfig(base)
	cfg.APIPath, cfg.GroupVersion = "/api", &corev1.SchemeGroupVersion
	server, path, err := rest.DefaultServerUrlFor(cfg)
	if err != nil {
		return nil, permanent("cannot tell the address of the API server: %v", err)
	}
	u := server.JoinPath(path, "namespaces", c.namespace, "pods", c.pod, "exec")
	q := url.Values{"command": c.args, "stdout": {"true"}, "stderr": {"true"}}
	if c.container != "" {
		q.Set("container", c.container)
	}
	if c.stdin != "" {
		q.Set("stdin", "true")
	}
	u.RawQuery = q.Encode()
	return u, nil
}

// How a connection is watched, and how long a server may take to close one after it has said how the command ended.
const (
	pingEvery   = 5 * time.Second
	pingTimeout = 60 * time.Second
	closing     = 5 * time.Second
)

func (e *Executor) streamWebSocket(ctx context.Context, u *url.URL, c command) streamed {
	transport, holder, err := websocket.RoundTripperFor(e.options.Client.Config)
	if err != nil {
		return streamed{err: permanent("cannot make a connection: %v", err)}
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		return streamed{err: permanent("cannot make a request: %v", err)}
	}
	conn, err := websocket.Negotiate(transport, holder, req, remotecommand.StreamProtocolV5Name)
	if err != nil {
		var refused *httpstream.UpgradeFailureError
		var status apierrors.APIStatus
		if errors.As(err, &refused) && errors.As(refused.Cause, &status) {
			err = refused.Cause // it says why; its wrapper hides it from errors.As
		}
		return streamed{err: withoutURL(err)}
	}
	defer conn.Close() //nolint:errcheck // nothing is lost: the status has been read, or not
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer stop()
	conn.SetReadLimit(MaxRead)
	s := &socket{conn: conn}
	go s.send(c.stdin)
	done := make(chan struct{})
	defer close(done)
	go s.ping(done)
	out := streamed{}
	status := s.receive(&out)
	out.finish(ctx, status)
	return out
}

// socket is a WebSocket that speaks v5.channel.k8s.io.
type socket struct {
	conn  *gwebsocket.Conn
	write sync.Mutex
}

// send writes standard input, and closes it.
func (s *socket) send(stdin string) {
	if stdin == "" {
		return
	}
	const chunk = 16 * 1024
	for len(stdin) > 0 {
		n := min(chunk, len(stdin))
		if !s.message(append([]byte{remotecommand.StreamStdIn}, stdin[:n]...)) {
			return
		}
		stdin = stdin[n:]
	}
	s.message([]byte{remotecommand.StreamClose, remotecommand.StreamStdIn})
}

// message tells whether a message could be written; if not, the reader finds out why.
func (s *socket) message(data []byte) bool {
	s.write.Lock()
	defer s.write.Unlock()
	if err := s.conn.SetWriteDeadline(time.Now().Add(pingTimeout)); err != nil {
		return false
	}
	return s.conn.WriteMessage(gwebsocket.BinaryMessage, data) == nil
}

func (s *socket) ping(done <-chan struct{}) {
	ticker := time.NewTicker(pingEvery)
	defer ticker.Stop()
	for {
		select {
		case <-done:
			return
		case <-ticker.C:
			if s.conn.WriteControl(gwebsocket.PingMessage, nil, time.Now().Add(pingEvery)) != nil {
				return
			}
		}
	}
}

// receive reads until the connection ends, and returns what was said of the end of the command.
func (s *socket) receive(out *streamed) (status []byte) {
	alive := func(string) error { return s.conn.SetReadDeadline(time.Now().Add(pingTimeout)) }
	s.conn.SetPongHandler(alive)
	if err := alive(""); err != nil {
		return nil
	}
	for {
		kind, data, err := s.conn.ReadMessage()
		if err != nil {
			return status
		}
		if kind != gwebsocket.BinaryMessage || len(data) == 0 {
			continue
		}
		switch data[0] {
		case remotecommand.StreamStdOut:
			_, _ = out.stdout.Write(data[1:]) // never fails
		case remotecommand.StreamStdErr:
			_, _ = out.stderr.Write(data[1:])
		case remotecommand.StreamErr:
			if status = append(status, data[1:]...); json.Valid(status) {
				s.conn.SetPongHandler(nil)
				if s.conn.SetReadDeadline(time.Now().Add(closing)) != nil {
					return status
				}
			}
		}
	}
}

func (e *Executor) streamSPDY(ctx context.Context, u *url.URL, c command) streamed {
	transport, upgrader, err := spdy.RoundTripperFor(e.options.Client.Config)
	if err != nil {
		return streamed{err: permanent("cannot make a connection: %v", err)}
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, u.String(), nil)
	if err != nil {
		return streamed{err: permanent("cannot make a request: %v", err)}
	}
	conn, _, err := spdy.NegotiateStreaming(upgrader, &http.Client{Transport: transport}, req, remotecommand.StreamProtocolV4Name)
	if err != nil {
		return streamed{err: withoutURL(err)}
	}
	defer conn.Close() //nolint:errcheck // nothing is lost: the status has been read, or not
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer stop()
	out := streamed{}
	status, err := pump(conn, c, &out)
	if err != nil {
		return streamed{err: err}
	}
	out.finish(ctx, status)
	return out
}

// pump copies what the streams of a SPDY connection carry, and returns what was said of the end of the command.
func pump(conn httpstream.Connection, c command, out *streamed) ([]byte, error) {
	open := func(kind string) (httpstream.Stream, error) {
		headers := http.Header{}
		headers.Set(corev1.StreamType, kind)
		s, err := conn.CreateStream(headers)
		if err != nil {
			return nil, fmt.Errorf("cannot open a stream: %w", err)
		}
		return s, nil
	}
	failed, err := open(corev1.StreamTypeError)
	if err != nil {
		return nil, err
	}
	if c.stdin != "" {
		in, err := open(corev1.StreamTypeStdin)
		if err != nil {
			return nil, err
		}
		go func() {
			defer in.Close()                   //nolint:errcheck // the reader finds out
			_, _ = io.WriteString(in, c.stdin) // the reader finds out
		}()
	}
	var wait sync.WaitGroup
	for kind, to := range map[string]*output{corev1.StreamTypeStdout: &out.stdout, corev1.StreamTypeStderr: &out.stderr} {
		from, err := open(kind)
		if err != nil {
			return nil, err
		}
		wait.Go(func() { _, _ = io.Copy(to, from) }) // what is missing is missing: the status tells
	}
	status, _ := io.ReadAll(io.LimitReader(failed, MaxRead)) // an error leaves it incomplete
	wait.Wait()
	return status, nil
}

// finish reads what was said of the end of the command.
func (s *streamed) finish(ctx context.Context, data []byte) {
	var status metav1.Status
	switch err := json.Unmarshal(data, &status); {
	case err != nil && ctx.Err() != nil:
		s.err = errors.New("time ran out, or it was stopped, while it was under way; it may go on")
	case err != nil:
		s.err = errNoStatus
	case status.Status == metav1.StatusSuccess:
	case status.Reason == remotecommand.NonZeroExitCodeReason && status.Details != nil:
		for _, c := range status.Details.Causes {
			if c.Type != remotecommand.ExitCodeCauseType {
				continue
			}
			if s.exitCode, err = strconv.Atoi(c.Message); err == nil {
				return
			}
		}
		s.err = errNoStatus
	default:
		s.err = &brokenError{message: status.Message}
	}
}
