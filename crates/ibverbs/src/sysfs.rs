//! Reading sysfs on behalf of programs: `ibv_devinfo` asks for `board_id`, librdmacm for node
//! descriptions. Under `feroce run` the shim answers for `/sys/class/infiniband`; these functions
//! only read files. Not here: what stands in them.

use std::ffi::{CStr, CString, OsStr, c_char, c_int};
use std::fs::File;
use std::io::Read as _;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::Path;
use std::ptr;
use std::sync::OnceLock;

use crate::guard::{self, Failure};

/// Where sysfs is mounted: `SYSFS_PATH` of the environment, else `/sys`.
///
/// # Safety
/// None needed. The string lives as long as the process.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_get_sysfs_path() -> *const c_char {
    static PATH: OnceLock<CString> = OnceLock::new();
    PATH.get_or_init(|| sysfs_path(std::env::var_os("SYSFS_PATH").map(|path| path.into_vec())))
        .as_ptr()
}

fn sysfs_path(from_environment: Option<Vec<u8>>) -> CString {
    let mut path = from_environment.unwrap_or_default();
    while path.last() == Some(&b'/') {
        path.pop();
    }
    if path.is_empty() {
        c"/sys".to_owned()
    } else {
        CString::new(path).unwrap_or_default()
    }
}

/// Reads `dir/file` into `buf` as a C string without its line end. Returns its length, or -1.
///
/// # Safety
/// `dir` and `file` are C strings; `buf` points to `size` bytes.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_read_sysfs_file(
    dir: *const c_char,
    file: *const c_char,
    buf: *mut c_char,
    size: usize,
) -> c_int {
    guard::minus_one("ibv_read_sysfs_file", || {
        guard::not_null(dir.cast_mut(), "dir")?;
        guard::not_null(file.cast_mut(), "file")?;
        guard::not_null(buf, "buf")?;
        // SAFETY: the caller's contract, above; null was refused.
        let (dir, file) = unsafe { (CStr::from_ptr(dir), CStr::from_ptr(file)) };
        let path = Path::new(OsStr::from_bytes(dir.to_bytes())).join(relative(file));
        let text = read_value(&path, size)?;
        // SAFETY: `read_value` returns less than `size` bytes, so text and terminator fit in the
        // `size` bytes of the caller, which nothing of ours overlaps.
        unsafe {
            ptr::copy_nonoverlapping(text.as_ptr(), buf.cast(), text.len());
            buf.add(text.len()).write(0);
        }
        c_int::try_from(text.len()).map_err(|_| Failure::invalid("size is above 2 GiB"))
    })
}

/// `file` joined to a folder stays below it even if it begins with a slash.
fn relative(file: &CStr) -> &Path {
    let bytes = file.to_bytes();
    let start = bytes
        .iter()
        .position(|&byte| byte != b'/')
        .unwrap_or(bytes.len());
    Path::new(OsStr::from_bytes(&bytes[start..]))
}

/// The content of a sysfs file without its line end, if it takes less than `size` bytes.
fn read_value(path: &Path, size: usize) -> Result<Vec<u8>, Failure> {
    let failed = |error: std::io::Error| {
        let errno = error.raw_os_error().unwrap_or(libc::EIO);
        Failure::new(errno, format!("{}: {error}", path.display()))
    };
    let file = File::open(path).map_err(failed)?;
    let mut text = Vec::new();
    file.take(size as u64)
        .read_to_end(&mut text)
        .map_err(failed)?;
    if text.last() == Some(&b'\n') {
        text.pop();
    }
    if text.len() >= size {
        let reason = format!("{} does not fit into {size} bytes", path.display());
        return Err(Failure::new(libc::EOVERFLOW, reason));
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(name: &str, content: &[u8], size: usize) -> (c_int, Vec<u8>) {
        let folder = std::env::temp_dir().join(format!("feroce-sysfs-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join(name), content).unwrap();
        let folder = CString::new(folder.into_os_string().into_vec()).unwrap();
        let file = CString::new(format!("/{name}")).unwrap();
        let mut buffer = vec![0x55_u8; size + 1];
        // SAFETY: two C strings and a buffer of more than `size` bytes.
        let length = unsafe {
            let buffer = buffer.as_mut_ptr().cast();
            ibv_read_sysfs_file(folder.as_ptr(), file.as_ptr(), buffer, size)
        };
        assert_eq!(buffer.pop(), Some(0x55), "wrote past the end");
        (length, buffer)
    }

    #[test]
    fn a_value_comes_without_its_line_end_and_terminated() {
        assert_eq!(
            read("board", b"FEROCE0\n", 12),
            (7, b"FEROCE0\0\x55\x55\x55\x55".to_vec())
        );
        assert_eq!(read("bare", b"ab", 3), (2, b"ab\0".to_vec()));
        assert_eq!(read("empty", b"", 1), (0, b"\0".to_vec()));
    }

    #[test]
    fn a_value_may_fill_the_buffer_but_for_the_terminator() {
        assert_eq!(read("exact", b"abc\n", 4), (3, b"abc\0".to_vec()));
        assert_eq!(read("long", b"abcd\n", 4).0, -1);
        assert_eq!(read("none", b"a", 0).0, -1);
    }

    #[test]
    fn a_missing_file_is_minus_one_and_says_why() {
        let mut buffer = [0; 8];
        // SAFETY: two C strings and a buffer of 8 bytes.
        let length = unsafe {
            ibv_read_sysfs_file(
                c"/proc".as_ptr(),
                c"no/such".as_ptr(),
                buffer.as_mut_ptr(),
                8,
            )
        };
        assert_eq!(length, -1);
        assert_eq!(
            std::io::Error::last_os_error().raw_os_error(),
            Some(libc::ENOENT)
        );
    }

    #[test]
    fn the_environment_names_the_mount_point_without_its_slashes() {
        assert_eq!(sysfs_path(None).as_c_str(), c"/sys");
        assert_eq!(sysfs_path(Some(b"/".to_vec())).as_c_str(), c"/sys");
        assert_eq!(
            sysfs_path(Some(b"/mnt/sys//".to_vec())).as_c_str(),
            c"/mnt/sys"
        );
    }
}
