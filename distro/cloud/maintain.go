package cloud

import (
	"context"
	"fmt"

	"github.com/mnicloud/mnicloud/distro/supervisor"
)

// Maintain renews the certificates of a running instance that are old, and restarts the parts that use them. It does
// nothing otherwise. The supervisor calls it from time to time.
func (c Cloud) Maintain(ctx context.Context) error {
	s, err := c.readSettings()
	if err != nil || s.Nodes == 0 {
		return err
	}
	options, err := c.options(s)
	if err != nil {
		return err
	}
	plan, renewed, err := c.write(options)
	if err != nil || len(renewed) == 0 {
		return err
	}
	if err := supervisor.WritePlan(c.Guard(nil).PlanFile, plan); err != nil {
		return err
	}
	if err := c.Client().Apply(ctx, plan); err != nil {
		return fmt.Errorf("restart what uses the renewed certificates %v: %w", renewed, err)
	}
	return nil
}
