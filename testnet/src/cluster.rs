//! A whole job in one process: communicators above models of driver, socket and network, with
//! random faults, checked at every instant.
//!
//! One seed decides everything: the job, the operations, the faults and every packet's fate. A
//! failing seed is shrunk until no fault, rank or operation can be left out.
//!
//! Start here: [`run::run`] runs one [`schedule::ClusterSchedule`], [`shrink::shrink`] makes a
//! failing one small.
//!
//! - [`faults`]: the faults that a seed can enable. [`draw`]: random numbers by name.
//! - `clock`, `paths`, `host`: the models of clock, network and driver.
//! - `program`, `numbers`: what the ranks do, and which elements must come out.
//! - `evidence`: the fate of every packet. `results`: what the operations gave. `residuals`: what
//!   ranks owe to the next step. `encoded`: both for sums with codecs.
//! - [`week`]: a long training job without faults.
//! - [`violation`]: how a check is named when it fails.

mod clock;
pub mod draw;
mod encoded;
mod evidence;
pub mod faults;
mod host;
mod numbers;
mod paths;
mod program;
mod residuals;
mod results;
pub mod run;
pub mod schedule;
pub mod shrink;
mod traffic;
pub mod violation;
pub mod week;
