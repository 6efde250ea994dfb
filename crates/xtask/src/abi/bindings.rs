//! `cargo xtask abi --regenerate`: writes the generated files of `crates/verbs-abi` from the C
//! headers of a folder. Needs libclang, hence the cargo feature `regenerate`; without it the
//! command runs itself again with the feature. The output is committed: nobody else needs libclang.

#[cfg(not(feature = "regenerate"))]
pub(super) fn regenerate(include: &str) -> anyhow::Result<()> {
    let status = crate::cargo::command()
        .args([
            "run",
            "--quiet",
            "--package",
            "feroce-xtask",
            "--features",
            "regenerate",
            "--",
        ])
        .args(["abi", "--regenerate", "--include", include])
        .status()?;
    anyhow::ensure!(status.success(), "regenerating failed");
    Ok(())
}

#[cfg(feature = "regenerate")]
pub(super) use with_bindgen::regenerate;

#[cfg(feature = "regenerate")]
mod with_bindgen {
    use std::fmt::Write as _;
    use std::fs;

    use anyhow::{Context, Result, ensure};
    use bindgen::callbacks::{DeriveTrait, ImplementsTrait, ParseCallbacks};
    use bindgen::{Builder, EnumVariation, Formatter};

    use crate::abi::layout::Layout;
    use crate::cargo;

    const HEADERS: &str = "\
#include <infiniband/verbs.h>
#include <infiniband/sa.h>
#include <rdma/ib_user_sa.h>
#include <rdma/ib_user_verbs.h>
#include <rdma/rdma_cma.h>
#include <rdma/rdma_verbs.h>
#include <rdma/rsocket.h>
";
    const NOTICE: &str = "// Written by `cargo xtask abi --regenerate` from the headers of \
                          rdma-core 65. Do not edit.\n\n";

    /// The generator must not guess about types that come from libc.
    #[derive(Debug)]
    struct KnownTypes;

    impl ParseCallbacks for KnownTypes {
        fn blocklisted_type_implements_trait(
            &self,
            _name: &str,
            derive: DeriveTrait,
        ) -> Option<ImplementsTrait> {
            (derive == DeriveTrait::Copy).then_some(ImplementsTrait::Yes)
        }
    }

    pub(crate) fn regenerate(include: &str) -> Result<()> {
        let folder = cargo::workspace().join("crates/verbs-abi/src");
        let header = fs::read_to_string(format!("{include}/infiniband/verbs.h"))
            .with_context(|| format!("{include}/infiniband/verbs.h (package libibverbs-dev)"))?;
        ensure!(
            header.contains("ibv_create_comp_cntr"),
            "the headers in {include} are older than rdma-core 65, from which the committed files \
             were made: unpack a newer libibverbs-dev and name its folder with --include"
        );
        let text = types(include)?;
        let (types, asserts) = split_asserts(&text);
        let layout = Layout::from_asserts(&asserts).context("bindgen's layout asserts")?;
        fs::write(folder.join("bindings.rs"), format!("{NOTICE}{types}"))?;
        fs::write(
            folder.join("layout.rs"),
            format!("{NOTICE}{}", layout_source(&layout)),
        )?;
        fs::write(
            folder.join("functions.rs"),
            format!("{NOTICE}{}", functions(include)?),
        )?;
        let status = cargo::command()
            .args(["fmt", "--package", "feroce-verbs-abi"])
            .status()?;
        ensure!(status.success(), "cargo fmt failed");
        Ok(())
    }

    fn builder(include: &str) -> Builder {
        Builder::default()
            .header_contents("feroce.h", HEADERS)
            .clang_arg(format!("-I{include}"))
            .use_core()
            .generate_comments(false)
            .disable_header_comment()
            .formatter(Formatter::None)
            .parse_callbacks(Box::new(KnownTypes))
    }

    fn types(include: &str) -> Result<String> {
        let text = builder(include)
            .default_enum_style(EnumVariation::Consts)
            .prepend_enum_name(false)
            .derive_debug(false)
            .allowlist_type("ibv_.*")
            .allowlist_type("verbs_context")
            .allowlist_type("ib_uverbs_(qp_attr|ah_attr|global_route)")
            .allowlist_type("ib_user_path_rec")
            .allowlist_type("rdma_.*")
            .allowlist_var("IBV_.*|ETHERNET_LL_SIZE|IB_ROCE_.*|IB_GRH_.*")
            .allowlist_var("RDMA_.*|RAI_.*|SOL_RDMA")
            .blocklist_type("rdma_driver_id|__socklen_t|sockaddr.*|socklen_t|sa_family_t")
            .blocklist_type("in_addr.*|in_port_t|in6_addr.*")
            .blocklist_type("pthread_.*|timespec|__be.*|__u8|__u16|__u32|__u64|__aligned_u64")
            .blocklist_type("__pthread_.*|__time_t|__syscall_slong_t|__atomic_wide_counter.*")
            .raw_line("use libc::{pthread_cond_t, pthread_mutex_t, timespec};")
            .raw_line("use libc::{sockaddr, sockaddr_in, sockaddr_in6, sockaddr_storage};")
            .raw_line("use libc::socklen_t;")
            .raw_line("use crate::{__be16, __be32, __be64};")
            .generate()?
            .to_string();
        // The kernel's names for plain integers say nothing that Rust's do not.
        let mut text = text.replace("__aligned_u64", "u64");
        for bits in ["8", "16", "32", "64"] {
            text = text.replace(&format!("__u{bits}"), &format!("u{bits}"));
        }
        Ok(text)
    }

    fn functions(include: &str) -> Result<String> {
        let text = builder(include)
            .allowlist_function("_?ibv_.*|mbps_to_ibv_rate|mult_to_ibv_rate")
            .allowlist_function("rdma_.*|rsocket|rbind|rlisten|raccept|rconnect|rshutdown|rclose")
            .allowlist_function("rrecv.*|rsend.*|rread.?|rwrite.?|rpoll|rselect|rget.*|rsetsockopt")
            .allowlist_function("rfcntl|riomap|riounmap|riowrite|repoll_.*")
            .allowlist_recursively(false)
            .raw_line("//! Declarations of the public entry points; see the crate's head.")
            .raw_line("use crate::*;")
            .raw_line("use libc::{epoll_event, fd_set, iovec, msghdr, nfds_t, off_t, pollfd};")
            .raw_line("use libc::{sockaddr, socklen_t, timeval};")
            .generate()?
            .to_string();
        Ok(text)
    }

    /// Takes bindgen's layout asserts out of its output.
    fn split_asserts(text: &str) -> (String, Vec<String>) {
        let (mut types, mut asserts) = (String::new(), Vec::new());
        let mut rest = text;
        const START: &str = "const _ : () = {";
        while let Some(start) = rest.find(START) {
            let (before, block) = rest.split_at(start);
            let before = before.trim_end();
            types.push_str(before.strip_suffix(ATTRIBUTE).unwrap_or(before));
            types.push('\n');
            let end = block.find("} ;").map_or(block.len(), |end| end + 3);
            asserts.push(block[..end].to_owned());
            rest = &block[end..];
        }
        types.push_str(rest);
        (types, asserts)
    }

    const ATTRIBUTE: &str = "# [allow (clippy :: unnecessary_operation , clippy :: identity_op)]";

    fn layout_source(layout: &Layout) -> String {
        let mut source = String::from(
            "//! Sizes, alignments and offsets, as C lays the structs out on x86-64: the compiler\n\
             //! refuses the crate when one differs.\n\nuse crate::*;\n\n",
        );
        for (name, item) in &layout.types {
            let mut line = format!("layout!({name}: {}, {} {{", item.size, item.align);
            for (field, offset) in &item.fields {
                let next = format!(" {field}: {offset},");
                if line.len() + next.len() > COLUMNS_MAX {
                    let _ = writeln!(source, "{line}");
                    line = "   ".to_owned();
                }
                line.push_str(&next);
            }
            let _ = writeln!(source, "{line} }});");
        }
        source
    }

    const COLUMNS_MAX: usize = 96;
}
