package node

import (
	"context"
	"net/http"

	"github.com/columbamq/columba/metadata"
	"github.com/columbamq/columba/metadata/remote"
)

// service answers the calls of other processes for the metadata that this one reaches. It begins with the process; its
// streams end with Stop.
type service struct {
	store  metadata.Store
	serve  bool // others may ask
	ctx    context.Context
	cancel context.CancelFunc
}

func newService(store metadata.Store) service {
	s := service{store: store}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	return s
}

// Routes registers the service.
func (s *service) Routes(mux *http.ServeMux) {
	if !s.serve {
		return
	}
	path, handler := remote.NewHandler(s.store)
	mux.HandleFunc(path, func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithCancel(r.Context())
		defer cancel()
		defer context.AfterFunc(s.ctx, cancel)()
		handler.ServeHTTP(w, r.WithContext(ctx))
	})
}

// Start has nothing to acquire.
func (s *service) Start(context.Context) error { return nil }

// Stop ends the streams of others.
func (s *service) Stop(context.Context) error {
	s.cancel()
	return nil
}
