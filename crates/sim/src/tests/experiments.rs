//! The experiments, held against their bounds, each with the seed that replays it.

use crate::Chance;
use crate::experiment::{PerMille, Transport, loss, permutation};

const SEED: u64 = 1;

/// Without loss go-back-N fills the line; with loss it does not, which is why it is in the
/// tables.
#[test]
fn roce_fills_the_line_and_suffers_from_loss() {
    let transport = Transport::roce();
    let clean = loss(&transport, Chance::NEVER, SEED).unwrap();
    assert!(clean.of_line >= PerMille(970), "{clean:?}");
    assert_eq!(clean.retransmitted, 0, "{clean:?}");
    let lossy = loss(&transport, Chance::percent(1), SEED).unwrap();
    assert!(lossy.of_line < PerMille(700), "{lossy:?}");
    assert!(lossy.retransmitted > 100, "{lossy:?}");
}

#[test]
fn a_roce_permutation_ends() {
    let run = permutation(&Transport::roce(), SEED).unwrap();
    assert!(run.completion.is_some(), "{run:?}");
}
