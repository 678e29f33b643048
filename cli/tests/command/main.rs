//! The command as its users see it: processes, exit codes, output.

mod applying;
mod browsing;
mod closing;
mod command_line;
mod doctor;
mod evaluating;
mod events;
mod failing;
mod golden;
mod measuring;
mod models;
mod namespaces;
mod probing;
mod processes;
mod schedules;
mod sim;
mod sweep;
mod switch;
mod tracing;
mod tuning;
mod watching;
