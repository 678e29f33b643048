//! The command as its users see it: processes, exit codes, what is printed.

mod command_line;
mod failing;
mod measuring;
mod processes;
mod sim;
mod sweep;
