//! Turns the aliases of `symbols.txt` into assembler text for `src/versions.rs`.

use std::path::Path;
use std::{env, fs};

mod symbols;

fn main() -> Result<(), String> {
    println!("cargo::rerun-if-changed=symbols.txt");
    println!("cargo::rerun-if-changed=symbols.rs");
    let table = fs::read_to_string("symbols.txt").map_err(|error| error.to_string())?;
    let table = symbols::Table::parse(&table)?;
    let architecture = env::var("CARGO_CFG_TARGET_ARCH").unwrap_or_default();
    let jump = match architecture.as_str() {
        "x86_64" => "jmp",
        "aarch64" => "b",
        "riscv64" => "tail",
        other => {
            return Err(format!(
                "no jump instruction known for {other}: add one here"
            ));
        }
    };
    let folder = env::var("OUT_DIR").map_err(|error| error.to_string())?;
    let file = Path::new(&folder).join("aliases.s");
    fs::write(file, table.aliases(jump)).map_err(|error| error.to_string())
}
