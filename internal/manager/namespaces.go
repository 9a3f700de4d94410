package manager

import (
	"context"
	"errors"
	"maps"
	"net/http"
	"sync"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
)

// namespaces knows the labels of namespaces. Their watch starts with the first question: most installations need none.
type namespaces struct {
	informers cache.Informers
	changed   func(namespace string)

	once   sync.Once
	mu     sync.Mutex
	byName map[string]map[string]string
}

// labels returns the labels of a namespace; false: it is not known, or not yet. It does not wait: when the namespace becomes
// known, changed is called.
func (n *namespaces) labels(name string) (map[string]string, bool) {
	n.once.Do(func() { go n.watch() })
	n.mu.Lock()
	defer n.mu.Unlock()
	l, ok := n.byName[name]
	return l, ok
}

func (n *namespaces) watch() {
	kind := &metav1.PartialObjectMetadata{}
	kind.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Namespace"))
	informer, err := n.informers.GetInformer(context.Background(), kind, cache.BlockUntilSynced(false))
	if err != nil {
		return // the cache has been stopped
	}
	_, _ = informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc:    func(obj any) { n.set(obj, false) },
		UpdateFunc: func(_, obj any) { n.set(obj, false) },
		DeleteFunc: func(obj any) {
			if gone, ok := obj.(toolscache.DeletedFinalStateUnknown); ok {
				obj = gone.Obj
			}
			n.set(obj, true)
		},
	})
}

func (n *namespaces) set(obj any, gone bool) {
	m, ok := obj.(*metav1.PartialObjectMetadata)
	if !ok {
		return
	}
	n.mu.Lock()
	old, known := n.byName[m.Name]
	if n.byName == nil {
		n.byName = map[string]map[string]string{}
	}
	if gone {
		delete(n.byName, m.Name)
	} else {
		n.byName[m.Name] = m.Labels
	}
	n.mu.Unlock()
	if gone || !known || !maps.Equal(old, m.Labels) {
		n.changed(m.Name)
	}
}

// started tells whether the caches have filled: a Runnable is started after them.
type started struct{ yes atomic.Bool }

// Start implements manager.Runnable.
func (s *started) Start(ctx context.Context) error {
	s.yes.Store(true)
	<-ctx.Done()
	return nil
}

// NeedLeaderElection implements manager.LeaderElectionRunnable: a standby is ready too.
func (*started) NeedLeaderElection() bool { return false }

func (s *started) check(*http.Request) error {
	if !s.yes.Load() {
		return errors.New("the caches are being filled")
	}
	return nil
}
