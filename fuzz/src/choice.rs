//! Choices that take one byte of the input, so that mutation hits them.

/// Implements `Arbitrary` for an enum: one byte chooses among the makers, which take the rest.
/// (A derived choice takes four bytes, which mutation seldom gets right.)
macro_rules! choice {
    ($name:ident: $($variant:expr,)+) => {
        impl<'a> arbitrary::Arbitrary<'a> for $name {
            fn arbitrary(u: &mut arbitrary::Unstructured<'a>) -> arbitrary::Result<Self> {
                type Maker<'a> =
                    fn(&mut arbitrary::Unstructured<'a>) -> arbitrary::Result<$name>;
                let makers: &[Maker<'a>] = &[$($variant),+];
                let index = usize::from(u.arbitrary::<u8>()?) % makers.len();
                makers[index](u)
            }
        }
    };
}

pub(crate) use choice;
