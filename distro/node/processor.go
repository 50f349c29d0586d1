package node

import "golang.org/x/sys/unix"

// processors are the numbers of those that this process may use.
func processors() []int {
	var set unix.CPUSet
	if err := unix.SchedGetaffinity(0, &set); err != nil {
		return nil
	}
	var all []int
	for cpu := 0; len(all) < set.Count(); cpu++ {
		if set.IsSet(cpu) {
			all = append(all, cpu)
		}
	}
	return all
}

// onProcessor keeps the calling thread, which must end with what it does, on one processor; on any when none is given.
func onProcessor(processor ...int) error {
	if len(processor) == 0 {
		return nil
	}
	var set unix.CPUSet
	for _, cpu := range processor {
		set.Set(cpu)
	}
	return unix.SchedSetaffinity(0, &set)
}
