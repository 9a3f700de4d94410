package step_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/gorilla/websocket"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/rest"

	"github.com/libretto-dev/libretto/api/v1alpha1"
	"github.com/libretto-dev/libretto/internal/identity"
	"github.com/libretto-dev/libretto/internal/operation"
	"github.com/libretto-dev/libretto/internal/program"
	"github.com/libretto-dev/libretto/internal/step"
)

// Whatever becomes of the connection: a command is a success only when the server says so.
func TestExecConnection(t *testing.T) {
	pod := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Pod", "metadata": map[string]any{"namespace": "ns", "name": "p"},
		"spec": map[string]any{"containers": []any{map[string]any{"name": "c"}}}}}
	instance := &unstructured.Unstructured{Object: map[string]any{"metadata": map[string]any{"namespace": "ns", "name": "it", "uid": "u"}}}
	for name, tc := range map[string]struct {
		// say is what the server sends before it closes the connection; empty: nothing.
		say     string
		abrupt  bool
		status  int
		want    operation.Outcome
		message string
	}{
		"success":              {say: `{"status":"Success"}`, want: operation.Succeeded},
		"success, cut off":     {say: `{"status":"Success"}`, abrupt: true, want: operation.Succeeded},
		"exit code":            {say: `{"status":"Failure","reason":"NonZeroExitCode","details":{"causes":[{"reason":"ExitCode","message":"7"}]}}`, want: operation.Failed, message: "exit code 7"},
		"closed":               {want: operation.Unknown, message: "not known"},
		"cut off":              {abrupt: true, want: operation.Unknown},
		"half a status":        {say: `{"status":"Succ`, want: operation.Unknown},
		"runtime gone":         {say: `{"status":"Failure","message":"error reading from server: EOF"}`, want: operation.Unknown},
		"not started":          {say: `{"status":"Failure","message":"container not found"}`, want: operation.Failed},
		"forbidden":            {status: http.StatusForbidden, say: `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Forbidden","code":403,"message":"User \"u\" cannot create resource \"pods/exec\""}`, want: operation.Failed, message: "may not create pods/exec"},
		"no such server":       {status: http.StatusBadGateway, say: "x", want: operation.Failed},
		"gone in the meantime": {status: http.StatusNotFound, say: `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"NotFound","code":404,"message":"pods \"p\" not found","details":{"kind":"pods"}}`, want: operation.Failed},
	} {
		t.Run(name, func(t *testing.T) {
			s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if tc.status != 0 {
					w.Header().Set("Content-Type", "application/json")
					w.WriteHeader(tc.status)
					_, _ = w.Write([]byte(tc.say))
					return
				}
				up := websocket.Upgrader{Subprotocols: []string{"v5.channel.k8s.io"}}
				conn, err := up.Upgrade(w, r, nil)
				if err != nil {
					return
				}
				defer conn.Close() //nolint:errcheck // the test goes on
				if tc.say != "" {
					_ = conn.WriteMessage(websocket.BinaryMessage, append([]byte{3}, tc.say...))
				}
				if !tc.abrupt {
					_ = conn.WriteControl(websocket.CloseMessage, websocket.FormatCloseMessage(websocket.CloseNormalClosure, ""), time.Now().Add(time.Second))
				}
			}))
			defer s.Close()
			e := step.New(step.Options{Client: &identity.Client{Config: &rest.Config{Host: s.URL}, Dynamic: fake.NewSimpleDynamicClient(runtime.NewScheme(), pod)}})
			r := e.Do(t.Context(), step.Request{Program: &program.Program{}, Instance: instance, Run: &operation.Run{}, Eval: &evaluator{}, Start: operation.Start{
				Step: &program.Step{Name: "exec"}, Attempt: v1alpha1.Attempt{ID: "1", StartTime: metav1.NowMicro()},
				Action: &program.Action{Exec: &program.ExecAction{Pod: static("p"), Command: static([]any{"true", "s3cret"})}},
			}})
			if r.Outcome != tc.want || !strings.Contains(r.Message, tc.message) || strings.Contains(r.Message, "s3cret") {
				t.Errorf("outcome %d, want %d: %s", r.Outcome, tc.want, r.Message)
			}
		})
	}
}
