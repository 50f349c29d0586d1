// Command mni-cloud runs the controllers of the cloud: all of them in one process on one machine, or chosen ones
// (--services=vpc,ctr) per Deployment on a fleet.
package main

import (
	"fmt"
	"os"

	ctrl "sigs.k8s.io/controller-runtime"
)

func main() {
	if err := command().ExecuteContext(ctrl.SetupSignalHandler()); err != nil {
		fmt.Fprintln(os.Stderr, "mni-cloud:", err)
		os.Exit(1)
	}
}
