package simulate

import (
	"encoding/xml"
	"fmt"
	"strings"
)

type junitSuites struct {
	XMLName  xml.Name     `xml:"testsuites"`
	Tests    int          `xml:"tests,attr"`
	Failures int          `xml:"failures,attr"`
	Time     string       `xml:"time,attr"`
	Suites   []junitSuite `xml:"testsuite"`
}

type junitSuite struct {
	Name     string      `xml:"name,attr"`
	Tests    int         `xml:"tests,attr"`
	Failures int         `xml:"failures,attr"`
	Time     string      `xml:"time,attr"`
	Cases    []junitCase `xml:"testcase"`
}

type junitCase struct {
	Name    string        `xml:"name,attr"`
	Class   string        `xml:"classname,attr"`
	File    string        `xml:"file,attr"`
	Line    int           `xml:"line,attr"`
	Time    string        `xml:"time,attr"`
	Failure *junitFailure `xml:"failure"`
}

type junitFailure struct {
	Message string `xml:"message,attr"`
	Text    string `xml:",chardata"`
}

// JUnit prints results as JUnit XML, a suite for each file.
func JUnit(results []*Result) ([]byte, error) {
	suites := junitSuites{}
	var total, suiteTime float64
	for _, r := range results {
		if n := len(suites.Suites); n == 0 || suites.Suites[n-1].Name != r.File {
			suites.Suites = append(suites.Suites, junitSuite{Name: r.File})
			suiteTime = 0
		}
		s := &suites.Suites[len(suites.Suites)-1]
		seconds := r.Elapsed.Seconds()
		total, suiteTime = total+seconds, suiteTime+seconds
		c := junitCase{Name: r.Name, Class: r.Definition, File: r.File, Line: r.Line, Time: fmt.Sprintf("%.3f", seconds)}
		suites.Tests++
		s.Tests++
		if !r.Passed {
			suites.Failures++
			s.Failures++
			texts := make([]string, 0, len(r.Failures))
			for _, f := range r.Failures {
				texts = append(texts, f.String())
			}
			text := strings.Join(texts, "\n")
			first, _, _ := strings.Cut(text, "\n")
			c.Failure = &junitFailure{Message: first, Text: text}
		}
		s.Cases = append(s.Cases, c)
		s.Time = fmt.Sprintf("%.3f", suiteTime)
	}
	suites.Time = fmt.Sprintf("%.3f", total)
	data, err := xml.MarshalIndent(suites, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("cannot make JUnit XML: %w", err)
	}
	return append([]byte(xml.Header), append(data, '\n')...), nil
}
