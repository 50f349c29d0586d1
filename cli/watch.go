package cli

import (
	"context"
	"fmt"
	"strings"
	"sync"

	"github.com/liggitt/tabwriter"
	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/cli-runtime/pkg/printers"
	"k8s.io/cli-runtime/pkg/resource"
	"k8s.io/client-go/rest"
	"k8s.io/kubectl/pkg/cmd/get"
)

// watching prints objects and then each change, of any number of kinds, until the context ends.
type watching struct {
	*connection
	options *get.GetOptions
	// lock lets one kind at a time print, or make its printer: to make one writes into the options' flags.
	lock sync.Mutex
}

// run watches what the arguments of `mni get` mean.
func (w *watching) run(ctx context.Context, args []string) error {
	each, err := w.kindByKind(args)
	if err != nil {
		return err
	}
	group, groupCtx := errgroup.WithContext(ctx)
	for _, args := range each {
		group.Go(func() error {
			for first := true; ; first = false {
				if err := w.kind(groupCtx, args, len(each) > 1, first); err != nil || groupCtx.Err() != nil {
					return err
				}
			}
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	return ctx.Err()
}

// kindByKind cuts arguments into those of one kind, or of one object, each.
func (w *watching) kindByKind(args []string) ([][]string, error) {
	if len(args) == 0 {
		return [][]string{nil}, nil // files
	}
	var each [][]string
	if strings.Contains(args[0], "/") {
		for _, arg := range args {
			each = append(each, []string{arg})
		}
		return each, nil
	}
	kinds := strings.Split(args[0], ",")
	if args[0] == category {
		d, err := w.discovery()
		if err != nil {
			return nil, err
		}
		if kinds, err = tenantKinds(d); err != nil {
			return nil, err
		}
	}
	names := args[1:]
	for _, kind := range kinds {
		if len(names) == 0 {
			each = append(each, []string{kind})
		}
		for _, name := range names {
			each = append(each, []string{kind, name})
		}
	}
	return each, nil
}

// kind prints the objects of one kind (at first not with --watch-only), and changes until the API server ends the watch.
func (w *watching) kind(ctx context.Context, args []string, withKind, first bool) error {
	o := w.options
	r := w.factory().NewBuilder().Unstructured().
		NamespaceParam(o.Namespace).DefaultNamespace().AllNamespaces(o.AllNamespaces).
		FilenameParam(o.ExplicitNamespace, &o.FilenameOptions).
		LabelSelectorParam(o.LabelSelector).FieldSelectorParam(o.FieldSelector).
		ResourceTypeOrNameArgs(true, args...).
		SingleResourceType().Latest().
		TransformRequests(w.askForTables).Do()
	infos, err := r.Infos()
	if err != nil {
		if o.IgnoreNotFound && apierrors.IsNotFound(err) {
			<-ctx.Done()
			return nil
		}
		return err
	}
	w.lock.Lock()
	printer, err := o.ToPrinter(infos[0].Mapping, nil, o.AllNamespaces, withKind)
	w.lock.Unlock()
	if err != nil {
		return err
	}
	rows := &rows{printer: printer, table: printers.GetNewTabWriter(w.streams.Out)}
	if !first || !o.WatchOnly {
		if err := w.print(rows, infos[0].Object); err != nil {
			return err
		}
	}
	return w.changes(ctx, r, infos[0], rows)
}

// rows prints objects of one kind, each row as wide as those before.
type rows struct {
	printer printers.ResourcePrinterFunc
	table   *tabwriter.Writer
}

// changes prints the events of a watch until it ends.
func (w *watching) changes(ctx context.Context, r *resource.Result, present *resource.Info, rows *rows) error {
	// The watch of a list goes on from there. That of one object begins anywhere and tells the object first.
	from, known := present.ResourceVersion, false
	if present.Name != "" {
		from, known = "0", true
	}
	events, err := r.Watch(from)
	if err != nil {
		return err
	}
	defer events.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case event, more := <-events.ResultChan():
			switch {
			case !more || event.Type == watch.Error:
				return nil // the API server ends watches from time to time
			case known:
				known = false
				continue
			}
			if err := w.print(rows, event.Object); err != nil {
				return err
			}
		}
	}
}

// print prints an object, or those of a list.
func (w *watching) print(rows *rows, o runtime.Object) error {
	objects := []runtime.Object{o}
	if meta.IsListType(o) {
		var err error
		if objects, err = meta.ExtractList(o); err != nil {
			return err
		}
	}
	w.lock.Lock()
	defer w.lock.Unlock()
	for _, o := range objects {
		if err := rows.printer.PrintObj(o, rows.table); err != nil {
			return fmt.Errorf("print: %w", err)
		}
	}
	return rows.table.Flush()
}

// askForTables lets the API server make the tables that people read.
func (w *watching) askForTables(request *rest.Request) {
	if w.options.ServerPrint && w.options.IsHumanReadablePrinter {
		request.SetHeader("Accept", "application/json;as=Table;v=v1;g=meta.k8s.io,application/json")
	}
}
