//! The command `dpsgd`.
fn main() {}
