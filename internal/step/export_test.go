package step

import "context"

// OverSPDY runs a command as with a server that has no WebSocket for it.
func (e *Executor) OverSPDY(ctx context.Context, namespace, pod, stdin string, args ...string) (stdout string, exitCode int, err error) {
	c := command{namespace: namespace, pod: pod, args: args, stdin: stdin}
	u, err := execURL(e.options.Client.Config, c)
	if err != nil {
		return "", 0, err
	}
	out := e.streamSPDY(ctx, u, c)
	return out.stdout.text(), out.exitCode, out.err
}
