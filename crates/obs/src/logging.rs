//! Log lines on stderr, when someone asks for them.
//!
//! The library runs inside strangers' programs, whose stderr is theirs: it says nothing unless
//! `FEROCE_LOG` names a level. What it says goes through the `log` facade, so a Rust program with
//! a logger of its own keeps that one.

use log::{LevelFilter, Log, Metadata, Record};

/// The environment variable that asks for log lines.
const VARIABLE: &str = "FEROCE_LOG";

struct Stderr;

impl Log for Stderr {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.level() <= log::max_level()
    }

    fn log(&self, record: &Record<'_>) {
        if self.enabled(record.metadata()) {
            crate::write_line(&line(record));
        }
    }

    fn flush(&self) {}
}

/// Sets up logging as `FEROCE_LOG` asks: `error`, `warn`, `info`, `debug` or `trace`; anything else
/// is complained about, once. Later calls do nothing.
pub fn init_logging() {
    static ONCE: std::sync::Once = std::sync::Once::new();
    ONCE.call_once(|| {
        let Some(value) = std::env::var_os(VARIABLE).filter(|value| !value.is_empty()) else {
            return;
        };
        let value = value.to_string_lossy();
        match level(&value) {
            Some(level) => {
                // Fails when the program has a logger: then that one decides.
                if log::set_logger(&Stderr).is_ok() {
                    log::set_max_level(level);
                }
            }
            None => crate::complain(&format!(
                "{VARIABLE}={value} is no level; use error, warn, info, debug or trace"
            )),
        }
    });
}

fn level(text: &str) -> Option<LevelFilter> {
    text.trim().parse().ok()
}

fn line(record: &Record<'_>) -> String {
    format!(
        "feroce[{}] {} {}: {}\n",
        std::process::id(),
        record.level().as_str().to_ascii_lowercase(),
        record.target(),
        record.args()
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use log::Level;

    #[test]
    fn levels_are_read_in_any_case() {
        assert_eq!(level("warn"), Some(LevelFilter::Warn));
        assert_eq!(level(" TRACE "), Some(LevelFilter::Trace));
        assert_eq!(level("off"), Some(LevelFilter::Off));
        assert_eq!(level("verbose"), None);
        assert_eq!(level("1"), None);
    }

    #[test]
    fn a_line_tells_process_level_and_place() {
        let record = Record::builder()
            .level(Level::Info)
            .target("feroce_netio::net")
            .args(format_args!("hello"))
            .build();
        assert_eq!(
            line(&record),
            format!(
                "feroce[{}] info feroce_netio::net: hello\n",
                std::process::id()
            )
        );
    }
}
