//! Errors of RDMA, each with its remedy.

use std::io;
use std::net::IpAddr;

/// RDMA cannot be used, or has failed in use.
#[derive(Debug, thiserror::Error)]
pub enum RdmaError {
    /// There is no libibverbs.
    #[error(
        "libibverbs.so.1 cannot be loaded ({said}): install rdma-core's libraries (Debian: `apt \
         install libibverbs1 ibverbs-providers`, Red Hat: `dnf install libibverbs`)"
    )]
    NoLibrary {
        /// The loader's error.
        said: String,
    },
    /// It lacks a function.
    #[error("libibverbs.so.1 has no {symbol}: rdma-core 32 or newer is needed; update it")]
    OldLibrary {
        /// The function.
        symbol: String,
    },
    /// The system refuses to list devices.
    #[error(
        "RDMA devices cannot be listed ({source}): load the kernel's side, `modprobe ib_uverbs`"
    )]
    NoList {
        /// The system's error.
        source: io::Error,
    },
    /// There is no device.
    #[error(
        "this host has no RDMA device: `rdma link` lists them, a container needs `--device \
         /dev/infiniband`, a vendor's devices its driver and ibverbs-providers; where there is no \
         RDMA hardware, `rdma link add rxe0 type rxe netdev eth0` makes one of software"
    )]
    NoDevice,
    /// The job names another device.
    #[error("transport.rdma_device names {given:?}, but this host's devices are {there}")]
    UnknownDevice {
        /// As given.
        given: String,
        /// Which there are.
        there: String,
    },
    /// Not for this user.
    #[error(
        "RDMA device {device} cannot be opened ({source}): this user may not read and write \
         /dev/infiniband/uverbs*; set their mode or group (udev does, mode 0666), or let the \
         container have `--device /dev/infiniband`"
    )]
    NoPermission {
        /// The device.
        device: String,
        /// The system's error.
        source: io::Error,
    },
    /// Its file is missing.
    #[error(
        "RDMA device {device} cannot be opened ({source}): there is no /dev/infiniband/uverbs* for \
         it; `modprobe ib_uverbs`, or start the container with `--device /dev/infiniband`"
    )]
    NoFile {
        /// The device.
        device: String,
        /// The system's error.
        source: io::Error,
    },
    /// No device has the rank's address.
    #[error(
        "no RDMA device has the address {address} as a RoCE v2 GID: there are {there}; bind the \
         rank to the address of one, or name one by transport.rdma_device"
    )]
    NoDeviceHas {
        /// The rank's address.
        address: IpAddr,
        /// Devices with their addresses.
        there: String,
    },
    /// The table of GIDs has none there.
    #[error(
        "transport.rdma_gid is {given}, but device {device} has no RoCE v2 GID there: it has \
         {there}"
    )]
    UnknownGid {
        /// As given.
        given: u8,
        /// The device.
        device: String,
        /// Which there are.
        there: String,
    },
    /// The port has no address for RoCE v2.
    #[error(
        "RDMA device {device} has no RoCE v2 GID: give its network interface an IP address; of \
         other types it has {there}"
    )]
    NoGid {
        /// The device.
        device: String,
        /// Which there are.
        there: String,
    },
    /// The port leads nowhere.
    #[error(
        "port {port} of RDMA device {device} is down: `ip link set up` its network interface \
         (`rdma link` names it), and look at cable and switch"
    )]
    PortDown {
        /// The device.
        device: String,
        /// Its port.
        port: u8,
    },
    /// The port went down, and stayed down.
    #[error(
        "port {port} of RDMA device {device} went down and did not come back within \
         {waited_ms} ms: `ip link set up` its network interface (`rdma link` names it), and look \
         at cable and switch"
    )]
    PortLost {
        /// The device.
        device: String,
        /// Its port.
        port: u8,
        /// For how long.
        waited_ms: u64,
    },
    /// The port takes smaller packets than the job wants to send.
    #[error(
        "transport.mtu is {given}, but RDMA device {device} takes packets of {most} bytes at most: \
         set transport.mtu to {} or \"auto\", or the MTU of its network interface higher (RoCE \
         rounds down to 1024, 2048 or 4096 bytes)",
        super::header::mtu_of(*.most)
    )]
    MtuTooLarge {
        /// The job's.
        given: u32,
        /// The device.
        device: String,
        /// The most bytes of a datagram on its port.
        most: u32,
    },
    /// Memory may not be locked.
    #[error(
        "{bytes} bytes cannot be registered with RDMA device {device} ({source}): the limit of \
         locked memory (`ulimit -l`) is {limit}; raise it (`ulimit -l unlimited`, \
         /etc/security/limits.conf, a container's `--ulimit memlock=-1`)"
    )]
    NoLockedMemory {
        /// How much was wanted.
        bytes: usize,
        /// The device.
        device: String,
        /// The limit.
        limit: String,
        /// The system's error.
        source: io::Error,
    },
    /// Memory of a GPU cannot be registered.
    #[error("dma-buf descriptor {fd} cannot be registered with RDMA device {device}: {cause}")]
    Dmabuf {
        /// The descriptor.
        fd: i32,
        /// The device.
        device: String,
        /// The cause and a remedy.
        cause: String,
    },
    /// No packet gets from one GID to the other.
    #[error(
        "RDMA device {device} has no way from its GID {from} to a peer's {to} ({source}): both \
         must be IPv4, or both IPv6, and one must reach the other; look at `ip route get`, and \
         choose others by transport.rdma_gid or the rank's address"
    )]
    NoWay {
        /// The device.
        device: String,
        /// The own GID.
        from: String,
        /// The peer's.
        to: String,
        /// The system's error.
        source: io::Error,
    },
    /// A verb failed.
    #[error(
        "RDMA device {device}: {what} failed ({source}); `dmesg` may tell more, and transport.wire \
        = \"udp\" works without RDMA"
    )]
    Verb {
        /// The device.
        device: String,
        /// The attempted action.
        what: &'static str,
        /// The system's error.
        source: io::Error,
    },
    /// The device is no more.
    #[error(
        "RDMA device {device} was removed or has failed while in use ({sign}): `rdma link` and \
         `dmesg` tell whether it is there; start the job again when it is"
    )]
    DeviceGone {
        /// The device.
        device: String,
        /// How it was noticed.
        sign: String,
    },
    /// A packet could not be sent or received.
    #[error(
        "RDMA device {device} ended a {what} with status {status} (vendor's {vendor}): the queue \
         pair is lost; start the job again, with transport.wire = \"udp\" if it comes again"
    )]
    Failed {
        /// The device.
        device: String,
        /// The kind of request.
        what: &'static str,
        /// `ibv_wc_status`.
        status: u32,
        /// The vendor's code, which its documents explain.
        vendor: u32,
    },
}

impl From<RdmaError> for io::Error {
    fn from(error: RdmaError) -> Self {
        Self::other(error)
    }
}
