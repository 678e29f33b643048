//! Chooses the device, port and GID of a rank.
//!
//! 1. If the job names devices, the ranks of a host take them in turn.
//! 2. Otherwise the rank takes the device with a port that has the rank's address as RoCE v2 GID,
//!    so that data and control plane use the same interface.
//! 3. InfiniBand ports have no such addresses, so one of them is taken if no Ethernet device has
//!    the address. A rank on a loopback address takes any device.
#![expect(unsafe_code, reason = "the library's functions take raw pointers")]

use std::ffi::{CStr, c_int};
use std::io;
use std::net::{IpAddr, Ipv6Addr};
use std::ptr;

use nix::sys::resource::{RLIM_INFINITY, Resource, getrlimit};

use super::abi::{
    DeviceLimits, GID_ROCE_V2, GidEntry, LINK_ETHERNET, MemoryRegistration, OpenDevice,
    PORT_ACTIVE, PortAttributes, ProtectionDomain,
};
use super::error::RdmaError;
use super::library::VerbsLibrary;
use super::verbs_object::VerbsObject;

/// The request of a rank.
#[derive(Clone, Copy, Debug)]
pub(super) struct DeviceRequest<'a> {
    /// The job's devices; if empty, the address decides.
    pub(super) devices: &'a [String],
    /// The index of the GID, if the job sets one.
    pub(super) gid: Option<u8>,
    /// The rank's address.
    pub(super) address: IpAddr,
    /// The rank's number: ranks of a host take devices in turn.
    pub(super) turn: usize,
}

/// An open device with a port that is up.
pub(super) struct RdmaDevice {
    domain: VerbsObject<ProtectionDomain>,
    open: VerbsObject<OpenDevice>,
    pub(super) library: &'static VerbsLibrary,
    pub(super) name: String,
    pub(super) limits: DeviceLimits,
    pub(super) place: PortGid,
}

/// A port and one of its GIDs.
#[derive(Clone, Copy, Debug)]
pub(super) struct PortGid {
    pub(super) port: u8,
    pub(super) index: u8,
    pub(super) gid: Ipv6Addr,
    pub(super) lid: u16,
    pub(super) link: LinkLayer,
    /// Maximum bytes of a datagram.
    pub(super) mtu: u32,
}

/// The link layer of a port.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum LinkLayer {
    /// RoCE v2.
    Ethernet,
    /// Native InfiniBand.
    InfiniBand,
}

impl std::fmt::Debug for RdmaDevice {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Device")
            .field("name", &self.name)
            .field("place", &self.place)
            .finish_non_exhaustive()
    }
}

impl RdmaDevice {
    /// Opens the device that a rank requests.
    ///
    /// # Errors
    /// [`RdmaError`] lists the devices or GIDs of this host if the requested one is missing.
    pub(super) fn find(
        library: &'static VerbsLibrary,
        wish: &DeviceRequest<'_>,
    ) -> Result<Self, RdmaError> {
        let list = DeviceList::of(library)?;
        let names = list.names();
        if names.is_empty() {
            return Err(RdmaError::NoDevice);
        }
        if !wish.devices.is_empty() {
            let given = &wish.devices[wish.turn % wish.devices.len()];
            let index = names.iter().position(|name| name == given);
            let Some(index) = index else {
                return Err(RdmaError::UnknownDevice {
                    given: given.clone(),
                    there: names.join(", "),
                });
            };
            return Candidate::open(&list, index)?.named(wish);
        }
        let candidates: Result<Vec<_>, _> = (0..names.len())
            .map(|index| Candidate::open(&list, index))
            .collect();
        chosen(candidates?, wish)
    }

    /// The library's pointer to the open device.
    pub(super) fn raw(&self) -> *mut OpenDevice {
        self.open.raw()
    }

    /// The protection domain.
    pub(super) fn domain(&self) -> *mut ProtectionDomain {
        self.domain.raw()
    }

    /// The error of a failed verb.
    pub(super) fn failed(&self, what: &'static str, source: io::Error) -> RdmaError {
        failed(&self.name, what, source)
    }

    /// Whether the port is up.
    ///
    /// # Errors
    /// [`RdmaError::DeviceGone`] if the device does not answer.
    pub(super) fn is_up(&self) -> Result<bool, RdmaError> {
        let port = port(self.library, self.raw(), self.place.port);
        let port = port.map_err(|source| RdmaError::DeviceGone {
            device: self.name.clone(),
            sign: format!("its port cannot be looked at: {source}"),
        })?;
        Ok(port.state == PORT_ACTIVE)
    }

    /// Takes ownership of a registration, or explains why it failed.
    ///
    /// # Safety
    /// As [`VerbsObject::new`].
    pub(super) unsafe fn registered(
        &self,
        raw: *mut MemoryRegistration,
        bytes: usize,
    ) -> Result<VerbsObject<MemoryRegistration>, RdmaError> {
        // SAFETY: the caller guarantees it.
        let owned = unsafe { VerbsObject::new(raw, self.library.unregister) };
        owned.map_err(|source| match source.raw_os_error() {
            Some(libc::ENOMEM | libc::EPERM) => RdmaError::NoLockedMemory {
                bytes,
                device: self.name.clone(),
                limit: locked_limit(),
                source,
            },
            _ => self.failed("registering memory", source),
        })
    }
}

/// Why a device cannot be opened. If the library may not open the device's file, it looks in a
/// second place and then reports a missing file; so the file's permission is checked here.
fn not_opened(device: &str, source: io::Error) -> RdmaError {
    let device = device.to_owned();
    match source.raw_os_error() {
        Some(libc::EACCES | libc::EPERM) => RdmaError::NoPermission { device, source },
        Some(libc::ENOENT) => match refusal() {
            Some(source) => RdmaError::NoPermission { device, source },
            None => RdmaError::NoFile { device, source },
        },
        _ => failed(&device, "opening it", source),
    }
}

/// The error of a device file that this process may not write, if there is one.
fn refusal() -> Option<io::Error> {
    let folder = std::fs::read_dir("/dev/infiniband");
    let files = folder.into_iter().flatten().flatten();
    files
        .filter(|file| file.file_name().as_encoded_bytes().starts_with(b"uverbs"))
        .filter_map(|file| {
            let mut options = std::fs::OpenOptions::new();
            options.write(true).open(file.path()).err()
        })
        .find(|error| error.kind() == io::ErrorKind::PermissionDenied)
}

fn failed(device: &str, what: &'static str, source: io::Error) -> RdmaError {
    RdmaError::Verb {
        device: device.to_owned(),
        what,
        source,
    }
}

/// The library's list of devices, freed when dropped.
struct DeviceList {
    library: &'static VerbsLibrary,
    first: *mut *mut super::abi::ListedDevice,
    count: usize,
}

impl DeviceList {
    fn of(library: &'static VerbsLibrary) -> Result<Self, RdmaError> {
        let mut count: c_int = 0;
        // SAFETY: the count is written; the list is ours until it is freed.
        let first = unsafe { (library.list)(&raw mut count) };
        if first.is_null() {
            let source = io::Error::last_os_error();
            return Err(RdmaError::NoList { source });
        }
        Ok(Self {
            library,
            first,
            count: usize::try_from(count).unwrap_or(0),
        })
    }

    fn device(&self, index: usize) -> *mut super::abi::ListedDevice {
        assert!(index < self.count, "devices are counted");
        // SAFETY: the list has that many entries.
        unsafe { *self.first.add(index) }
    }

    fn names(&self) -> Vec<String> {
        (0..self.count).map(|index| self.name(index)).collect()
    }

    fn name(&self, index: usize) -> String {
        // SAFETY: a listed device has a name, a C string that lives as long as the list.
        let name = unsafe { CStr::from_ptr((self.library.name)(self.device(index))) };
        name.to_string_lossy().into_owned()
    }
}

impl Drop for DeviceList {
    fn drop(&mut self) {
        // SAFETY: the library made the list. Devices that were opened stay open
        // (ibv_get_device_list(3)).
        unsafe { (self.library.free_list)(self.first) };
    }
}

/// An open device that may be chosen, with all its GIDs.
struct Candidate {
    open: VerbsObject<OpenDevice>,
    library: &'static VerbsLibrary,
    name: String,
    limits: DeviceLimits,
    places: Vec<(PortGid, GidState)>,
}

/// Whether packets can use a port, by one of its GIDs.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum GidState {
    Up,
    Down,
    /// A GID of another type than RoCE v2.
    Foreign,
}

impl Candidate {
    fn open(list: &DeviceList, index: usize) -> Result<Self, RdmaError> {
        let (library, name) = (list.library, list.name(index));
        // SAFETY: the device belongs to the list, which lives.
        let open = unsafe { VerbsObject::new((library.open)(list.device(index)), library.close) };
        let open = open.map_err(|source| not_opened(&name, source))?;
        // SAFETY: all-zero limits are valid, and the library writes no more than these.
        let mut limits: DeviceLimits = unsafe { std::mem::zeroed() };
        // SAFETY: as above.
        let code = unsafe { (library.limits)(open.raw(), &raw mut limits) };
        checked(code).map_err(|source| failed(&name, "asking what it can do", source))?;
        let mut found = Self {
            open,
            library,
            name,
            limits,
            places: Vec::new(),
        };
        for port in 1..=limits.ports {
            found.look_at(port)?;
        }
        Ok(found)
    }

    fn look_at(&mut self, number: u8) -> Result<(), RdmaError> {
        let port = port(self.library, self.open.raw(), number);
        let port = port.map_err(|source| failed(&self.name, "asking for its port", source))?;
        let link = match port.link_layer {
            LINK_ETHERNET => LinkLayer::Ethernet,
            _ => LinkLayer::InfiniBand,
        };
        for index in 0..port.gids.clamp(0, 256) {
            let mut entry = GidEntry::default();
            let (number, index) = (u32::from(number), index as u32);
            let (out, bytes) = (&raw mut entry, size_of::<GidEntry>());
            // SAFETY: the entry has as many bytes as stated.
            let code = unsafe { (self.library.gid)(self.open.raw(), number, index, out, 0, bytes) };
            if code != 0 || entry.gid == [0; 16] {
                continue;
            }
            let state = match (link, entry.kind, port.state) {
                (LinkLayer::Ethernet, kind, _) if kind != GID_ROCE_V2 => GidState::Foreign,
                (_, _, PORT_ACTIVE) => GidState::Up,
                _ => GidState::Down,
            };
            let place = PortGid {
                port: number as u8,
                index: index as u8,
                gid: Ipv6Addr::from(entry.gid),
                lid: port.lid,
                link,
                mtu: 128 << port.mtu.clamp(1, 5),
            };
            self.places.push((place, state));
        }
        Ok(())
    }

    /// The device as chosen, with its best port and GID.
    fn named(self, wish: &DeviceRequest<'_>) -> Result<RdmaDevice, RdmaError> {
        let found = match wish.gid {
            Some(index) => {
                let at_index = |(place, _): &&(PortGid, GidState)| place.index == index;
                let found = self.usable().filter(at_index).copied();
                found.min_by_key(|(_, state)| *state != GidState::Up)
            }
            None => {
                let own = mapped(wish.address);
                let rank = |(place, state): &(PortGid, GidState)| {
                    let is_v4 = place.gid.to_ipv4_mapped().is_some();
                    (*state != GidState::Up, place.gid != own, !is_v4)
                };
                self.usable().copied().min_by_key(rank)
            }
        };
        match (found, wish.gid) {
            (Some(found), _) => self.at(found),
            (None, Some(given)) => Err(RdmaError::UnknownGid {
                given,
                there: self.told(&[GidState::Up, GidState::Down]),
                device: self.name,
            }),
            (None, None) => Err(RdmaError::NoGid {
                there: self.told(&[GidState::Foreign]),
                device: self.name,
            }),
        }
    }

    fn usable(&self) -> impl Iterator<Item = &(PortGid, GidState)> {
        self.places
            .iter()
            .filter(|(_, state)| *state != GidState::Foreign)
    }

    fn at(self, (place, state): (PortGid, GidState)) -> Result<RdmaDevice, RdmaError> {
        if state != GidState::Up {
            return Err(RdmaError::PortDown {
                device: self.name,
                port: place.port,
            });
        }
        let library = self.library;
        // SAFETY: the device is open.
        let domain =
            unsafe { VerbsObject::new((library.make_domain)(self.open.raw()), library.end_domain) };
        let domain =
            domain.map_err(|source| failed(&self.name, "making a protection domain", source))?;
        Ok(RdmaDevice {
            domain,
            open: self.open,
            library,
            name: self.name,
            limits: self.limits,
            place,
        })
    }

    /// Lists its GIDs in these states.
    fn told(&self, states: &[GidState]) -> String {
        let listed = self.places.iter().filter(|(_, s)| states.contains(s));
        let listed: Vec<String> = listed
            .map(|(place, _)| format!("{}: {}", place.index, shown(place.gid)))
            .collect();
        match listed.is_empty() {
            true => "none".to_owned(),
            false => listed.join(", "),
        }
    }
}

/// The device that the rank's address chooses.
fn chosen(candidates: Vec<Candidate>, wish: &DeviceRequest<'_>) -> Result<RdmaDevice, RdmaError> {
    let own = mapped(wish.address);
    let has_own = |candidate: &Candidate| candidate.usable().any(|(place, _)| place.gid == own);
    // A loopback address belongs to no device, so any may serve.
    let any = wish.address.is_loopback();
    let is_near = |candidate: &Candidate| {
        let suits = |place: &PortGid| any || place.link == LinkLayer::InfiniBand;
        candidate
            .usable()
            .any(|(place, state)| *state == GidState::Up && suits(place))
    };
    let there: Vec<String> = candidates
        .iter()
        .map(|one| {
            format!(
                "{} ({})",
                one.name,
                one.told(&[GidState::Up, GidState::Down])
            )
        })
        .collect();
    let index = candidates
        .iter()
        .position(has_own)
        .or_else(|| candidates.iter().position(is_near));
    match index.and_then(|index| candidates.into_iter().nth(index)) {
        Some(candidate) => candidate.named(wish),
        None => Err(RdmaError::NoDeviceHas {
            address: wish.address,
            there: there.join(", "),
        }),
    }
}

fn port(library: &VerbsLibrary, device: *mut OpenDevice, number: u8) -> io::Result<PortAttributes> {
    // SAFETY: an all-zero port is valid.
    let mut port: PortAttributes = unsafe { std::mem::zeroed() };
    // SAFETY: the device is open, and the port has room for all that the library writes.
    checked(unsafe { (library.port)(device, number, &raw mut port) })?;
    Ok(port)
}

/// The result of a verb: 0, an error number of the system, or -1 with `errno` set.
pub(super) fn checked(code: c_int) -> io::Result<()> {
    match code {
        0 => Ok(()),
        ..0 => Err(io::Error::last_os_error()),
        _ => Err(io::Error::from_raw_os_error(code)),
    }
}

fn mapped(address: IpAddr) -> Ipv6Addr {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped(),
        IpAddr::V6(address) => address,
    }
}

/// A GID as people write it.
pub(super) fn shown(gid: Ipv6Addr) -> String {
    gid.to_ipv4_mapped()
        .map_or_else(|| gid.to_string(), |address| address.to_string())
}

/// The limit of memory that this process may lock.
fn locked_limit() -> String {
    match getrlimit(Resource::RLIMIT_MEMLOCK) {
        Ok((RLIM_INFINITY, _)) => "unlimited".to_owned(),
        Ok((bytes, _)) => format!("{} KiB", bytes / 1024),
        Err(_) => "unknown".to_owned(),
    }
}

/// A null pointer, for arguments that a verb does not need.
pub(super) fn nothing<T>() -> *mut T {
    ptr::null_mut()
}
