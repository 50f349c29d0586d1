// Package cloud starts, stops and deletes whole instances: it puts what the other rooms of distro make in order. Up looks
// at the machine, makes the network and the nodes, writes certificates and configuration, hands the plan to a supervisor
// and waits until the cloud answers. Everything is safe to do again, also after it was cut off anywhere.
package cloud
