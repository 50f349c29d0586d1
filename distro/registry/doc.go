// Package registry is the cloud's own OCI registry (OCI distribution specification): the server, the accounts that may use
// it, the client's settings of an instance, and what a node's containerd needs to pull from it. Requests and files under one
// data directory come in, images go out; nothing here knows Kubernetes or how images are made (see distro/images).
//
// # Authentication
//
// The registry is open until an htpasswd file exists in its state directory (`mni registry user add NAME` makes one). From
// then on, without a restart, every request needs a user name and password (HTTP Basic over TLS). Two accounts are the
// cloud's own and are made with the instance: "machine" may do everything (`mni up` and `mni image` on the machine use it),
// "node" may only pull below mni/, which is where the cloud's own images are. A node's containerd sends it in the header of
// hosts.toml, so the sandbox image and cluster DNS keep working; other images need an image pull secret of the Pod:
//
//	kubectl create secret docker-registry pull --docker-server=registry.mni.internal --docker-username=NAME --docker-password=...
//
// # Garbage collection
//
// Deleting a tag or manifest leaves its blobs. POST /-/collect (`mni image rm` and `mni image prune` send it) runs
// distribution's mark and sweep in the serving process. That is safe during pushes because the server notes every blob that
// a push uploads, mounts, looks up or names in a manifest, before it answers, and the sweep passes over these until the
// push's tag is written (at most an hour); a manifest whose blobs are missing is refused by the registry anyway.
package registry
