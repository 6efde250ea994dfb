//! Every target on its seeds and a few thousand inputs: what `cargo xtask fuzz` does for longer.

use feroce_fuzz::TARGETS;
use feroce_fuzz::driver::{Options, search};
use std::path::PathBuf;
use std::time::Duration;

#[test]
fn no_target_fails_on_its_seeds_and_a_few_more_inputs() {
    for target in &TARGETS {
        let options = Options {
            seed: 1,
            time: Duration::from_secs(60),
            runs: 5000,
            failures: PathBuf::from("failures"),
        };
        if let Err(failure) = search(target, &options) {
            panic!("{}: {failure:?}", target.name);
        }
    }
}
