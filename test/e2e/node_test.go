package e2e

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/libretto-dev/libretto/internal/testkit"
)

// nodeImage is the image that every node of hack/devcluster has.
const nodeImage = "localhost/busybox:1"

// volume makes a PersistentVolume for a claim of the test's namespace, and returns the directory that it is.
func (c *cluster) volume(t *testing.T, claim string, mode corev1.PersistentVolumeAccessMode) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "libretto-e2e-volume")
	if err != nil {
		t.Fatal(err)
	}
	volumes := c.clientset.CoreV1().PersistentVolumes()
	volume := &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: c.namespace + "-" + claim},
		Spec: corev1.PersistentVolumeSpec{
			Capacity:                      corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("10Gi")},
			AccessModes:                   []corev1.PersistentVolumeAccessMode{mode},
			PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimRetain,
			ClaimRef:                      &corev1.ObjectReference{Namespace: c.namespace, Name: claim},
			PersistentVolumeSource:        corev1.PersistentVolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: dir}},
		},
	}
	if _, err := volumes.Create(t.Context(), volume, metav1.CreateOptions{}); err != nil {
		t.Fatalf("cannot make a volume: %v", err)
	}
	t.Cleanup(func() {
		_ = volumes.Delete(context.Background(), volume.Name, metav1.DeleteOptions{}) // the cluster goes anyway
		_ = os.RemoveAll(dir)
	})
	return dir
}

// pods lists the pods with labels that are not going.
func (c *cluster) pods(t *testing.T, selector string) ([]corev1.Pod, error) {
	t.Helper()
	list, err := c.clientset.CoreV1().Pods(c.namespace).List(t.Context(), metav1.ListOptions{LabelSelector: selector})
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(list.Items, func(p corev1.Pod) bool { return p.DeletionTimestamp != nil }), nil
}

const (
	notesAPI  = "example.com/v1"
	notesKind = "Notes"
)

// note reads a note from the server's pod, as its users do.
func (c *cluster) note(t *testing.T, instance, name string) string {
	t.Helper()
	var text string
	testkit.Eventually(t, patience, "note "+name+" of "+instance, func() error {
		pods, err := c.pods(t, "app.kubernetes.io/name=notes,app.kubernetes.io/instance="+instance)
		if err != nil {
			return err
		}
		if len(pods) == 0 || pods[0].Status.PodIP == "" {
			return errors.New("there is no pod")
		}
		client := http.Client{Timeout: 2 * time.Second}
		answer, err := client.Get("http://" + pods[0].Status.PodIP + ":8080/" + name)
		if err != nil {
			return err
		}
		defer answer.Body.Close()
		body, err := io.ReadAll(answer.Body)
		if err == nil && answer.StatusCode != http.StatusOK {
			err = fmt.Errorf("status %d: %s", answer.StatusCode, body)
		}
		text = string(body)
		return err
	})
	return text
}

// notesNamed returns the Notes of the example with another name, an image that the node has, and a spec on top.
func notesNamed(t *testing.T, name string, backup map[string]any, restoreFrom string) *unstructured.Unstructured {
	t.Helper()
	obj := testkit.Objects(t, example(t, "backup", "instance.yaml"))[0]
	obj.SetName(name)
	spec := map[string]any{"image": nodeImage, "backup": backup}
	if restoreFrom != "" {
		spec["restoreFrom"] = restoreFrom
	}
	obj.Object["spec"] = spec
	return obj
}

func (c *cluster) createObject(t *testing.T, obj *unstructured.Unstructured) {
	t.Helper()
	testkit.Eventually(t, patience, "kind "+obj.GetKind()+" is served", func() error {
		_, err := c.TryApply(t.Context(), c.namespace, obj)
		return err
	})
}

func files(t *testing.T, dir, prefix string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), prefix) {
			all = append(all, e.Name())
		}
	}
	return all
}

func TestOnNodeBackup(t *testing.T) {
	t.Parallel()
	c := runOnNode(t, "backup")
	ops := c.operationsOf(t, notesAPI, "NotesOperation")
	backups := c.volume(t, "notes-backups", corev1.ReadWriteMany)
	c.createObject(t, testkit.Objects(t, example(t, "backup", "instance.yaml"))[1])

	c.volume(t, "journal-data", corev1.ReadWriteOnce)
	c.createObject(t, notesNamed(t, "journal", map[string]any{}, ""))
	c.waitReady(t, notesAPI, notesKind, "journal")
	ops.ended(t, ops.begin(t, "journal", "write", map[string]any{"name": "today", "text": "Remember the milk; $(reboot)"}), "Succeeded")
	if got := c.note(t, "journal", "today"); got != "Remember the milk; $(reboot)" {
		t.Fatalf("the note is %q", got)
	}

	run := ops.ended(t, ops.begin(t, "journal", "backup", map[string]any{"comment": "before the party"}), "Succeeded")
	file := field(run, "status", "output", "file")
	packed, err := os.ReadFile(filepath.Join(backups, file))
	if err != nil {
		t.Fatalf("the backup is not where its record says: %v; output: %v", err, run.Object["status"])
	}
	sum := sha256.Sum256(packed)
	if got := field(run, "status", "output", "sha256"); got != hex.EncodeToString(sum[:]) {
		t.Errorf("output.sha256 is %s, the file's %x", got, sum)
	}
	if size, _, _ := unstructured.NestedInt64(run.Object, "status", "output", "bytes"); size != int64(len(packed)) {
		t.Errorf("output.bytes is %d, the file has %d", size, len(packed))
	}

	// The notes are spoilt, and then all of them are lost.
	ops.ended(t, ops.begin(t, "journal", "write", map[string]any{"name": "today", "text": "nonsense"}), "Succeeded")
	c.remove(t, notesAPI, notesKind, "journal")
	c.waitGone(t, notesAPI, notesKind, "journal")
	c.waitGone(t, "v1", "PersistentVolumeClaim", "journal-data")
	if left := files(t, backups, "journal-"); !slices.Equal(left, []string{file}) {
		t.Fatalf("the backups of deleted Notes are %v, want %s", left, file)
	}

	c.volume(t, "copy-data", corev1.ReadWriteOnce)
	c.createObject(t, notesNamed(t, "copy", map[string]any{}, file))
	c.waitReady(t, notesAPI, notesKind, "copy")
	ops.only(t, "copy", "restore", "Succeeded")
	if got := c.note(t, "copy", "today"); got != "Remember the milk; $(reboot)" {
		t.Fatalf("the restored note is %q", got)
	}
	ops.testSchedule(t, "copy", backups)
}

// testSchedule backs Notes up every few seconds and looks at what is kept.
func (o operations) testSchedule(t *testing.T, name, backups string) {
	t.Helper()
	o.patch(t, notesAPI, notesKind, name, "test", `{"spec":{"backup":{"schedule":"*/4 * * * * *"}}}`)
	seen := map[string]bool{}
	testkit.Eventually(t, 3*patience, "six scheduled backups", func() error {
		for _, run := range o.of(t, name, "backup") {
			switch field(&run, "status", "state") {
			case "Succeeded":
				seen[run.GetName()] = true
			case "Failed", "Unknown", "Cancelled":
				t.Fatalf("a backup did not succeed: %v", run.Object["status"])
			}
			if got := field(&run, "spec", "trigger", "type"); got != "Schedule" {
				t.Fatalf("spec.trigger.type is %q, want Schedule", got)
			}
		}
		if len(seen) < 6 {
			return fmt.Errorf("%d so far", len(seen))
		}
		return nil
	})
	o.patch(t, notesAPI, notesKind, name, "test", `{"spec":{"backup":{"schedule":null}}}`)
	testkit.Eventually(t, patience, "three backups are kept, the files with the records", func() error {
		runs := o.of(t, name, "backup")
		var want []string
		for i := range runs {
			if s := field(&runs[i], "status", "state"); s != "Succeeded" {
				return fmt.Errorf("%s is %s", runs[i].GetName(), s)
			}
			want = append(want, field(&runs[i], "status", "output", "file"))
		}
		slices.Sort(want)
		// At midnight the rule daily keeps a fourth one.
		if got := files(t, backups, name+"-"); len(want) < 3 || len(want) > 4 || !slices.Equal(got, want) {
			return fmt.Errorf("the records are of %v, the files are %v", want, got)
		}
		return nil
	})
}

func TestOnNodeSelfHeal(t *testing.T) {
	t.Parallel()
	const api, kind = "example.com/v1", "Crew"
	c := runOnNode(t, "self-heal")
	ops := c.operationsOf(t, api, "CrewOperation")
	text := strings.ReplaceAll(example(t, "self-heal", "instance.yaml"), "busybox:1.37", nodeImage)

	t.Run("a pod that crashes again and again is replaced", func(t *testing.T) {
		c.create(t, text)
		c.waitReady(t, api, kind, "painters")
		const selector = "app.kubernetes.io/name=crew,app.kubernetes.io/instance=painters"
		before, err := c.pods(t, selector)
		if err != nil || len(before) != 2 {
			t.Fatalf("%d pods, want 2: %v", len(before), err)
		}
		broken, sound := before[0], before[1]
		kubectl := exec.CommandContext(t.Context(), "kubectl", "--kubeconfig", testkit.Kubeconfig(t), "-n", c.namespace, "exec", broken.Name, "--", "touch", "/work/broken")
		if out, err := kubectl.CombinedOutput(); err != nil {
			t.Fatalf("cannot break the pod: %v\n%s", err, out)
		}
		testkit.Eventually(t, 3*patience, "the broken pod is replaced, the sound one is not", func() error {
			pods, err := c.pods(t, selector)
			if err != nil {
				return err
			}
			has := func(p corev1.Pod) bool {
				return slices.ContainsFunc(pods, func(q corev1.Pod) bool { return q.UID == p.UID })
			}
			if !has(sound) {
				t.Fatal("the sound pod is gone")
			}
			if has(broken) {
				return errors.New("the broken pod is there")
			}
			return nil
		})
		ops.only(t, "painters", "replace", "Succeeded")
		c.waitEvent(t, "Healed", "painters", "all 2 are available")
		crew := c.waitReady(t, api, kind, "painters")
		if got := conditionStatus(crew, "Working"); got != "True" {
			t.Errorf("Working is %q, want True", got)
		}
	})
	t.Run("the number of pods follows a metric", func(t *testing.T) {
		var waiting atomic.Int64
		waiting.Store(35)
		metric := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprintf(w, `{"waiting": %d}`, waiting.Load())
		}))
		t.Cleanup(metric.Close)
		c.create(t, strings.ReplaceAll(text, "painters", "movers")+"    url: "+metric.URL+"\n    every: 1s\n")
		c.waitField(t, "apps/v1", "Deployment", "movers", 4, "spec", "replicas")
		c.waitField(t, api, kind, "movers", 4, "status", "pods")
		waiting.Store(0)
		c.waitField(t, "apps/v1", "Deployment", "movers", 2, "spec", "replicas")
		c.waitField(t, api, kind, "movers", 2, "status", "pods")
		waiting.Store(100000)
		c.waitField(t, "apps/v1", "Deployment", "movers", 10, "spec", "replicas")
		c.remove(t, api, kind, "movers")
		c.waitGone(t, "apps/v1", "Deployment", "movers")
	})
}
