// Package supervisor keeps the parts of an instance running.
//
// In comes a plan: processes, where they run, what must be ready before them and how their readiness is seen. One
// supervisor process an instance starts them in order, writes their output to log files, restarts what dies, and says
// how everything is over a Unix socket. The parts do not depend on it: they keep their log files open themselves, and a
// new supervisor finds them by their environment and takes them over. A keeper, which is a second small process, starts
// a new supervisor when it dies; the supervisor does the same for the keeper. The package knows nothing of Kubernetes.
package supervisor
