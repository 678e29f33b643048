//! Traces of training runs: the notes of ranks are read from files, compared and drawn.
//!
//! - [`recorders`]: reads flight recorders. [`standings`]: compares them: how far each rank is.
//! - [`events`]: reads event files, and makes the scene that is replayed. [`drawing`]: a replay as
//!   a picture.
//!
//! Not here: the content of a recorder (`gradwire_runtime::trace`), and how events are aligned,
//! replayed and searched (`gradwire_trace`).

pub mod drawing;
pub mod events;
pub mod recorders;
pub mod standings;
