package engine

import (
	"github.com/prometheus/client_golang/prometheus"
)

// Metrics of the engine. Labels name definitions, never objects.
var (
	writes = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "libretto_child_writes_total",
		Help: "Objects written on behalf of instances, by what was done: Created, Updated, Repaired, Adopted, Deleted.",
	}, []string{"definition", "action"})
	skipped = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "libretto_child_writes_skipped_total",
		Help: "Objects that were found to be as desired, without a request.",
	}, []string{"definition"})
	statusWrites = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "libretto_status_writes_total",
		Help: "Writes of the status of instances.",
	}, []string{"definition"})
	panics = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "libretto_panics_total",
		Help: "Panics while working on instances.",
	}, []string{"definition"})
	openCircuits = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "libretto_open_circuits",
		Help: "Objects that somebody else keeps changing and that Libretto has stopped changing back.",
	}, []string{"definition"})
	instances = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "libretto_instances",
		Help: "Instances, by state: ready, stalled, other.",
	}, []string{"definition", "state"})
	watches = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "libretto_watches",
		Help: "Watched kinds, by state: synced, forbidden, missing, waiting.",
	}, []string{"definition", "state"})
	operationRuns = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "libretto_operation_runs_total",
		Help: "Runs of operations that have ended, by state: Succeeded, Failed, Cancelled, Unknown.",
	}, []string{"definition", "operation", "state"})
	operationsStale = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "libretto_operations_stale",
		Help: "Instances for which the last success of an operation is older than its stale bound, or that have had none for so long.",
	}, []string{"definition", "operation"})
	quarantined = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "libretto_quarantined",
		Help: "1 while a definition is not worked on because its workers panicked.",
	}, []string{"definition"})
)

// Collectors returns the metrics, for a registry.
func Collectors() []prometheus.Collector {
	return []prometheus.Collector{writes, skipped, statusWrites, panics, openCircuits, instances, watches, operationRuns, operationsStale, quarantined}
}

// CountWrite counts what was done to an object; an empty action counts an object that was left alone.
func (r *Run) CountWrite(action string) {
	if action == "" {
		skipped.WithLabelValues(r.Spec().Definition).Inc()
		return
	}
	writes.WithLabelValues(r.Spec().Definition, action).Inc()
}

// CountStatusWrite counts a write of a status.
func (r *Run) CountStatusWrite() { statusWrites.WithLabelValues(r.Spec().Definition).Inc() }

// CountCircuit counts a circuit that opened (1) or closed (-1).
func (r *Run) CountCircuit(delta float64) {
	openCircuits.WithLabelValues(r.Spec().Definition).Add(delta)
}

// CountOperation counts a run that has ended.
func (r *Run) CountOperation(operation, state string) {
	operationRuns.WithLabelValues(r.Spec().Definition, operation, state).Inc()
}

func panicked(definition string) { panics.WithLabelValues(definition).Inc() }

func observeState(definition string, st State) {
	instances.WithLabelValues(definition, "ready").Set(float64(st.Ready))
	instances.WithLabelValues(definition, "stalled").Set(float64(st.Stalled))
	instances.WithLabelValues(definition, "other").Set(float64(st.Total - st.Ready - st.Stalled))
	for name, n := range st.Stale {
		operationsStale.WithLabelValues(definition, name).Set(float64(n))
	}
	counts := map[string]int{"synced": 0, "forbidden": 0, "missing": 0, "waiting": 0}
	for _, w := range st.Watches {
		switch {
		case w.Synced:
			counts["synced"]++
		case w.Forbidden:
			counts["forbidden"]++
		case w.NotFound:
			counts["missing"]++
		default:
			counts["waiting"]++
		}
	}
	for state, n := range counts {
		watches.WithLabelValues(definition, state).Set(float64(n))
	}
	value := 0.0
	if st.Quarantined != "" {
		value = 1
	}
	quarantined.WithLabelValues(definition).Set(value)
}

func forgetMetrics(definition string) {
	match := prometheus.Labels{"definition": definition}
	writes.DeletePartialMatch(match)
	skipped.DeletePartialMatch(match)
	statusWrites.DeletePartialMatch(match)
	panics.DeletePartialMatch(match)
	openCircuits.DeletePartialMatch(match)
	instances.DeletePartialMatch(match)
	watches.DeletePartialMatch(match)
	operationRuns.DeletePartialMatch(match)
	operationsStale.DeletePartialMatch(match)
	quarantined.DeletePartialMatch(match)
}
