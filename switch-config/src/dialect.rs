//! The platforms: how each writes a plan, and reads what is there. One module per platform
//! implements [`Dialect`].

pub mod commands;
pub mod contract;
pub mod eos;
pub mod junos;
pub mod linux;
pub mod nvue;
pub mod nxos;
pub mod openconfig;
pub mod sonic;

use crate::target::Platform;

pub use commands::Look;
pub use contract::Dialect;
use eos::Eos;
use junos::Junos;
use linux::Linux;
use nvue::Nvue;
use nxos::Nxos;
use openconfig::OpenConfig;
use sonic::Sonic;

/// The dialect of a platform.
pub fn of(platform: Platform) -> &'static dyn Dialect {
    match platform {
        Platform::Sonic => &Sonic,
        Platform::Nvue => &Nvue,
        Platform::Eos => &Eos,
        Platform::Junos => &Junos,
        Platform::Nxos => &Nxos,
        Platform::OpenConfig => &OpenConfig,
        Platform::Linux => &Linux,
    }
}
