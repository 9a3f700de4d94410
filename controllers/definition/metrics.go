package definition

import (
	"errors"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Metrics are the numbers about definitions. A nil *Metrics counts nothing.
type Metrics struct {
	compileSeconds *prometheus.HistogramVec
	ready          *prometheus.GaugeVec
	revisions      *prometheus.CounterVec
	crdWrites      *prometheus.CounterVec
}

// NewMetrics registers the metrics of definitions.
func NewMetrics(reg prometheus.Registerer) (*Metrics, error) {
	m := &Metrics{
		compileSeconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "libretto_definition_compile_duration_seconds", Help: "Time to compile a definition.",
			Buckets: prometheus.ExponentialBuckets(0.001, 4, 8),
		}, []string{"definition", "outcome"}),
		ready: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "libretto_definition_ready", Help: "1 if the definition has the condition Ready, else 0.",
		}, []string{"definition"}),
		revisions: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "libretto_definition_revisions_total", Help: "Number of revisions that were accepted or rejected.",
		}, []string{"definition", "outcome"}),
		crdWrites: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "libretto_definition_crd_writes_total", Help: "Number of writes of the CustomResourceDefinition.",
		}, []string{"definition"}),
	}
	return m, errors.Join(register(reg, &m.compileSeconds), register(reg, &m.ready), register(reg, &m.revisions), register(reg, &m.crdWrites))
}

// register registers a metric; one of the same name and labels that is there already, from another manager of the same
// process, is taken instead.
func register[T prometheus.Collector](reg prometheus.Registerer, c *T) error {
	err := reg.Register(*c)
	if already, ok := errors.AsType[prometheus.AlreadyRegisteredError](err); ok {
		if there, ok := already.ExistingCollector.(T); ok {
			*c = there
			return nil
		}
	}
	if err != nil {
		return fmt.Errorf("cannot register a metric: %w", err)
	}
	return nil
}

func (m *Metrics) compiled(definition string, d time.Duration, ok bool) {
	if m != nil {
		m.compileSeconds.WithLabelValues(definition, outcomeLabel(ok)).Observe(d.Seconds())
	}
}

func (m *Metrics) revision(definition string, accepted bool) {
	if m != nil {
		m.revisions.WithLabelValues(definition, outcomeLabel(accepted)).Inc()
	}
}

func (m *Metrics) crdWritten(definition string) {
	if m != nil {
		m.crdWrites.WithLabelValues(definition).Inc()
	}
}

func (m *Metrics) observe(definition string, ready bool) {
	if m == nil {
		return
	}
	v := 0.0
	if ready {
		v = 1
	}
	m.ready.WithLabelValues(definition).Set(v)
}

// forget drops the series of a definition that is gone.
func (m *Metrics) forget(definition string) {
	if m == nil {
		return
	}
	labels := prometheus.Labels{"definition": definition}
	m.compileSeconds.DeletePartialMatch(labels)
	m.ready.DeletePartialMatch(labels)
	m.revisions.DeletePartialMatch(labels)
	m.crdWrites.DeletePartialMatch(labels)
}

func outcomeLabel(ok bool) string {
	if ok {
		return "success"
	}
	return "error"
}
