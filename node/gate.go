package node

import (
	"context"
	"net/http"
	"sync/atomic"

	"github.com/columbamq/columba/core"
	"github.com/columbamq/columba/internal/lifecycle"
)

// role is a part that has pages on the one port. Its name is that of the configuration.
type role interface {
	Routes(mux *http.ServeMux)
	Start(ctx context.Context) error
	Run(ctx context.Context) error
	Stop(ctx context.Context) error
}

// namedRole is a role as the configuration calls it.
type namedRole struct {
	name string
	role
}

// gated keeps callers away from a role that has not started or has stopped. While it drains they are let through: what
// another role still needs of it must be answered, and the role itself says what it no longer takes.
type gated struct {
	namedRole
	mux       *http.ServeMux
	open      atomic.Bool
	patiently func(ctx context.Context, start func() error) error // starts it again while the metadata do not answer; nil: it is started once
}

var _ lifecycle.Part = (*gated)(nil)

func (g *gated) Name() string { return g.name }

func (g *gated) Start(ctx context.Context) error {
	start := func() error { return g.role.Start(ctx) }
	var err error
	if g.patiently != nil {
		err = g.patiently(ctx, start)
	} else {
		err = start()
	}
	if err != nil {
		return err
	}
	g.open.Store(true)
	return nil
}

func (g *gated) Stop(ctx context.Context) error {
	g.open.Store(false)
	return g.role.Stop(ctx)
}

// failing is why the role takes nothing new although it runs; nil otherwise.
func (g *gated) failing() error {
	if r, ok := g.role.(interface{ Ready() error }); ok && g.open.Load() {
		return r.Ready()
	}
	return nil
}

func (g *gated) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if !g.open.Load() {
		w.Header().Set("Retry-After", "1")
		writeText(w, http.StatusServiceUnavailable, g.name+" is not serving; try again")
		return
	}
	g.mux.ServeHTTP(w, r)
}

// pages are those of all roles. It is complete before it serves.
type pages []*gated

// add makes a role's pages part of p, and returns the role as the part to start.
func (p *pages) add(r namedRole) *gated {
	g := &gated{namedRole: r, mux: http.NewServeMux()}
	r.Routes(g.mux)
	*p = append(*p, g)
	return g
}

// failing is why a role takes nothing new although it runs; nil otherwise.
func (p *pages) failing() error {
	for _, g := range *p {
		if err := g.failing(); err != nil {
			return core.Errorf(core.CodeOf(err), "%s: %w", g.name, err)
		}
	}
	return nil
}

func (p *pages) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	for _, g := range *p {
		if _, pattern := g.mux.Handler(r); pattern != "" {
			if err := notServed(r, true); err != nil {
				refuse(w, r, err)
				return
			}
			g.ServeHTTP(w, r)
			return
		}
	}
	if err := notServed(r, false); err != nil {
		refuse(w, r, err)
		return
	}
	writeText(w, http.StatusNotFound, "no such page; the metrics are at /metrics, the API is in docs/http.md")
}
