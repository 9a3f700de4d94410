package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/term"
	"sigs.k8s.io/yaml"
)

// Formats of output for programs.
const (
	formatText = ""
	formatJSON = "json"
	formatYAML = "yaml"
)

// outputFlag adds -o with the given formats; the first is the default.
func outputFlag(cmd *cobra.Command, to *string, formats ...string) {
	usage := "output format: " + strings.Join(formats, ", ")
	def := formats[0]
	if def == "text" {
		def = formatText
		usage += " (default text)"
	}
	cmd.Flags().StringVarP(to, "output", "o", def, usage)
	oneOf(cmd, "output", formats...)
	check := cmd.PreRunE
	cmd.PreRunE = func(cmd *cobra.Command, args []string) error {
		if *to == "text" {
			*to = formatText
		}
		if *to != def && *to != formatText && !slices.Contains(formats, *to) || *to == formatText && def != formatText {
			return usagef("-o %s: this command prints %s", *to, strings.Join(formats, ", "))
		}
		if check != nil {
			return check(cmd, args)
		}
		return nil
	}
}

// printValue prints a value as JSON or YAML.
func printValue(w io.Writer, format string, value any) error {
	if format == formatJSON {
		e := json.NewEncoder(w)
		e.SetIndent("", "  ")
		e.SetEscapeHTML(false)
		if err := e.Encode(value); err != nil {
			return fmt.Errorf("cannot print JSON: %w", err)
		}
		return nil
	}
	data, err := yaml.Marshal(value)
	if err != nil {
		return fmt.Errorf("cannot print YAML: %w", err)
	}
	_, err = w.Write(data)
	return err
}

// painter colours text, on a terminal alone and not when NO_COLOR is set.
type painter struct{ on bool }

func newPainter(w io.Writer) painter {
	f, isFile := w.(*os.File)
	return painter{on: isFile && term.IsTerminal(int(f.Fd())) && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"}
}

// Colours, as SGR codes.
const (
	bold   = "1"
	dim    = "2"
	red    = "31"
	green  = "32"
	yellow = "33"
	blue   = "34"
)

func (p painter) paint(code, s string) string {
	if !p.on || s == "" {
		return s
	}
	return "\x1b[" + code + "m" + s + "\x1b[0m"
}

// count prints a number with its noun: 1 error, 2 errors.
func count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
