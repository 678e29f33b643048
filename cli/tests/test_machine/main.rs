//! The behaviour of a kernel with devices that this machine lacks: `tests/vm` boots it in QEMU.
//!
//! `make test-vm` runs these tests; so does `GRADWIRE_SLOW=1`. Where the machine cannot be had,
//! they say why and pass. In each folder of `tests/vm`, `guest.sh` is the guest's script.
//!
//! - [`guest`]: boots every scenario once, all at the same time.
//! - [`switch`]: `prio` and `red`, rendered by `gradwire switch`, beside the simulator.
//! - [`rdma`]: verbs over two Soft-RoCE devices, with that switch between them.

mod guest;
mod rdma;
mod switch;
