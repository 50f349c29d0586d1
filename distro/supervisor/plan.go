package supervisor

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/mnicloud/mnicloud/distro/instance"
	"github.com/mnicloud/mnicloud/distro/spawn"
)

// Plan is everything that a supervisor has to know.
type Plan struct {
	// Instance is the name that marks the processes.
	Instance string `json:"instance"`
	// LogDir gets one log a part, named after it.
	LogDir string `json:"logDir"`
	// RunDir gets the socket and what is remembered about running parts. It must not survive a reboot.
	RunDir string `json:"runDir"`
	// Parts in any order.
	Parts []Part `json:"parts"`
}

// Part is one process to keep running.
type Part struct {
	// Name is unique in the plan; it may have one "/" (node-1/kubelet).
	Name string `json:"name"`
	// Command is the absolute path of the program and its arguments. Revision changes when the program's file or a
	// configuration file does; a part whose Command, Env or Revision changed is restarted.
	Command  []string `json:"command"`
	Env      []string `json:"env,omitempty"`
	Revision string   `json:"revision,omitempty"`
	// Place is where it runs.
	Place spawn.Place `json:"place"`
	// After names the parts that must be ready before this one is started the first time. On stop the order is reversed.
	After []string `json:"after,omitempty"`
	// Once marks a job: it is ready when it has ended well, and is tried again until it does.
	Once bool `json:"once,omitempty"`
	// Ready says when it is ready; without it, as soon as it runs.
	Ready *Probe `json:"ready,omitempty"`
	// StopTimeout is how long it may take to end by itself before it is killed.
	StopTimeout time.Duration `json:"stopTimeout,omitempty"`
	// Sweep is a control group whose processes are ended after the part was stopped together with the instance.
	Sweep string `json:"sweep,omitempty"`
}

// Log is the path of a part's log.
func (p Plan) Log(part string) string {
	return filepath.Join(p.LogDir, filepath.FromSlash(part)+".log")
}

// Socket is where the plan's supervisor listens.
func (p Plan) Socket() string { return filepath.Join(p.RunDir, "supervisor.sock") }

// Part finds a part by name.
func (p Plan) Part(name string) (Part, bool) {
	i := slices.IndexFunc(p.Parts, func(part Part) bool { return part.Name == name })
	if i < 0 {
		return Part{}, false
	}
	return p.Parts[i], true
}

// Validate says what is wrong with a plan: double names, unknown or circular dependencies, relative programs.
func (p Plan) Validate() error {
	names := map[string]bool{}
	for _, part := range p.Parts {
		if names[part.Name] {
			return fmt.Errorf("part %q is in the plan twice", part.Name)
		}
		names[part.Name] = true
		if len(part.Command) == 0 || !filepath.IsAbs(part.Command[0]) {
			return fmt.Errorf("part %q: command must start with an absolute path", part.Name)
		}
	}
	const (
		visiting = 1
		done     = 2
	)
	state := map[string]int{}
	var visit func(name string) error
	visit = func(name string) error {
		switch state[name] {
		case visiting:
			return fmt.Errorf("part %q waits, through others, for itself", name)
		case done:
			return nil
		}
		state[name] = visiting
		part, ok := p.Part(name)
		if !ok {
			return fmt.Errorf("a part waits for %q, which is not in the plan", name)
		}
		for _, before := range part.After {
			if err := visit(before); err != nil {
				return err
			}
		}
		state[name] = done
		return nil
	}
	for _, part := range p.Parts {
		if err := visit(part.Name); err != nil {
			return err
		}
	}
	return nil
}

// ReadPlan reads a plan from a file, WritePlan writes it.
func ReadPlan(file string) (Plan, error) {
	var plan Plan
	raw, err := os.ReadFile(file)
	if err != nil {
		return plan, err
	}
	if err := json.Unmarshal(raw, &plan); err != nil {
		return plan, fmt.Errorf("%s: %w", file, err)
	}
	return plan, plan.Validate()
}

// WritePlan writes a plan where ReadPlan finds it.
func WritePlan(file string, plan Plan) error {
	if err := plan.Validate(); err != nil {
		return err
	}
	raw, err := json.MarshalIndent(plan, "", " ")
	if err != nil {
		return err
	}
	return instance.WriteFile(file, raw, 0o600)
}
