// Command mni-gateway is the face of the cloud's API: users' kubectl, programs and consoles speak to it.
package main

import (
	"fmt"
	"os"

	ctrl "sigs.k8s.io/controller-runtime"
)

func main() {
	if err := command().ExecuteContext(ctrl.SetupSignalHandler()); err != nil {
		fmt.Fprintln(os.Stderr, "mni-gateway:", err)
		os.Exit(1)
	}
}
