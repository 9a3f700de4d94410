package observe

func deployment(o object) result {
	if c, ok := o.condition("Progressing"); ok && c.reason == "ProgressDeadlineExceeded" {
		return failed("%s", c.text())
	}
	if _, seen := o.integer("status", "observedGeneration"); !seen {
		return no("its controller has not seen it yet")
	}
	if c, ok := o.condition("ReplicaFailure"); ok && c.status == "True" {
		return no("%s", c.text())
	}
	want := o.wanted("spec", "replicas")
	updated, total, available := o.number("status", "updatedReplicas"), o.number("status", "replicas"), o.number("status", "availableReplicas")
	switch {
	case updated < want:
		return no("%d of %d replicas updated", updated, want)
	case total > updated:
		return no("%d old replicas have to go", total-updated)
	case available < want:
		return no("%d of %d replicas available", available, want)
	}
	return yes()
}

func statefulSet(o object) result {
	if _, seen := o.integer("status", "observedGeneration"); !seen {
		return no("its controller has not seen it yet")
	}
	want := o.wanted("spec", "replicas")
	total, ready := o.number("status", "replicas"), o.number("status", "readyReplicas")
	switch {
	case total < want:
		return no("%d of %d replicas made", total, want)
	case ready < want:
		return no("%d of %d replicas ready", ready, want)
	case total > want:
		return no("%d replicas have to go", total-want)
	case o.text("spec", "updateStrategy", "type") == "OnDelete":
		return yes()
	}
	updated := o.number("status", "updatedReplicas")
	if partition, ok := o.integer("spec", "updateStrategy", "rollingUpdate", "partition"); ok && partition > 0 {
		if updated < want-partition {
			return no("%d of %d replicas above the partition updated", updated, want-partition)
		}
		return yes()
	}
	current, update := o.text("status", "currentRevision"), o.text("status", "updateRevision")
	if current != update && updated < want {
		return no("%d of %d replicas updated", updated, want)
	}
	return yes()
}

func daemonSet(o object) result {
	if _, seen := o.integer("status", "observedGeneration"); !seen {
		return no("its controller has not seen it yet")
	}
	want := o.number("status", "desiredNumberScheduled")
	scheduled, updated, available := o.number("status", "currentNumberScheduled"), o.number("status", "updatedNumberScheduled"), o.number("status", "numberAvailable")
	switch {
	case scheduled < want:
		return no("%d of %d pods made", scheduled, want)
	case updated < want && o.text("spec", "updateStrategy", "type") != "OnDelete":
		return no("%d of %d pods updated", updated, want)
	case available < want:
		return no("%d of %d pods available", available, want)
	}
	return yes()
}

func replicaSet(o object) result {
	if c, ok := o.condition("ReplicaFailure"); ok && c.status == "True" {
		return no("%s", c.text())
	}
	want := o.wanted("spec", "replicas")
	total, available := o.number("status", "replicas"), o.number("status", "availableReplicas")
	switch {
	case available < want:
		return no("%d of %d replicas available", available, want)
	case total > want:
		return no("%d replicas have to go", total-want)
	}
	return yes()
}

func pod(o object) result {
	switch phase := o.text("status", "phase"); phase {
	case "Succeeded":
		return yes()
	case "Failed":
		if m := o.text("status", "message"); m != "" {
			return failed("%s", m)
		}
		return failed("it has failed %s", o.text("status", "reason"))
	case "Running":
		if c, ok := o.condition("Ready"); ok && c.status == "True" {
			return yes()
		}
	}
	for _, list := range []string{"initContainerStatuses", "containerStatuses"} {
		if r, found := waiting(o, list); found {
			return r
		}
	}
	if c, ok := o.condition("PodScheduled"); ok && c.status == "False" {
		return no("it is not scheduled: %s", c.text())
	}
	if c, ok := o.condition("Ready"); ok {
		return no("%s", c.text())
	}
	return no("it has not started")
}

// waiting looks for a container that cannot start.
func waiting(o object, list string) (result, bool) {
	for _, item := range o.list("status", list) {
		m, ok := item.(map[string]any)
		if !ok {
			continue
		}
		c := object{m}
		switch reason := c.text("state", "waiting", "reason"); reason {
		case "", "ContainerCreating", "PodInitializing":
		default:
			return no("container %s waits: %s", c.text("name"), reason), true
		}
	}
	return result{}, false
}

func claim(o object) result {
	switch phase := o.text("status", "phase"); phase {
	case "Bound":
		return yes()
	case "Lost":
		return failed("its volume is lost")
	default:
		return no("it is not bound to a volume")
	}
}

func volume(o object) result {
	switch phase := o.text("status", "phase"); phase {
	case "Available", "Bound", "Released":
		return yes()
	case "Failed":
		return failed("it has failed: %s", o.text("status", "message"))
	default:
		return no("it is not available")
	}
}

func service(o object) result {
	if o.text("spec", "type") != "LoadBalancer" {
		return yes()
	}
	if len(o.list("status", "loadBalancer", "ingress")) == 0 {
		return no("its load balancer has no address")
	}
	return yes()
}

func namespace(o object) result {
	if o.text("status", "phase") != "Active" {
		return no("it is not active")
	}
	return yes()
}

func job(o object) result {
	if c, ok := o.condition("Failed"); ok && c.status == "True" {
		return failed("%s", c.text())
	}
	if c, ok := o.condition("Complete"); ok && c.status == "True" {
		return yes()
	}
	if suspended, _ := o.value("spec", "suspend").(bool); suspended {
		return no("it is suspended")
	}
	want := o.wanted("spec", "completions")
	return no("%d of %d completions, %d pods active, %d failed",
		o.number("status", "succeeded"), want, o.number("status", "active"), o.number("status", "failed"))
}

func disruptionBudget(o object) result {
	if _, seen := o.integer("status", "observedGeneration"); !seen {
		return no("its controller has not seen it yet")
	}
	if healthy, want := o.number("status", "currentHealthy"), o.number("status", "desiredHealthy"); healthy < want {
		return no("%d of %d pods healthy", healthy, want)
	}
	return yes()
}

func customResourceDefinition(o object) result {
	if c, ok := o.condition("NamesAccepted"); ok && c.status == "False" {
		return failed("%s", c.text())
	}
	c, ok := o.condition("Established")
	switch {
	case !ok:
		return no("it is not established yet")
	case c.status == "True":
		return yes()
	default:
		return no("%s", c.text())
	}
}

func apiService(o object) result {
	c, ok := o.condition("Available")
	switch {
	case !ok:
		return no("it is not available yet")
	case c.status == "True":
		return yes()
	default:
		return no("%s", c.text())
	}
}
