// Package seeds has the documents that the first description of the cloud prints, unchanged: whoever speaks to the cloud, however, must be able to
// apply them as they are.
package seeds

// Vpc is in the short form: a group without its domain, the tenant's name for a namespace, a name and a description for people.
const Vpc = `apiVersion: vpc/v1alpha
kind: Vpc
metadata:
  name: demo-vpc
  namespace: tenant-a
  displayName: "Tenant A Shared VPC"
  description: "VPC for tenant-a workloads"
  labels:
    env: dev
    owner: platform-team
spec:
  cidr: 10.42.0.0/16
`

// FloatingIP is in the form of Kubernetes.
const FloatingIP = `apiVersion: vpc.mnicloud.jp/v1alpha1
kind: FloatingIP
metadata:
  name: my-fip
  namespace: tenant-a
spec:
  externalIP: my-eip
  target:
    type: virtualMachines
    name: my-vm
`
