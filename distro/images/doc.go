// Package images makes the cloud's OCI images without any outside registry or container engine, and moves images between
// files and the cloud's registry. Our own binaries and Debian's packages come in, an OCI image layout comes out (Build); a
// layout, OCI archive or docker archive comes in, manifests and blobs go to a registry (Push, PushLayout). The same input
// gives the same digest; inputs that did not change are not built or pushed again. Kubernetes and containerd are not known
// here.
package images
