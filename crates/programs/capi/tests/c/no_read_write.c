/* A netmap descriptor is a device without read, write and seek, and not a socket: these calls fail as in the kernel; none of them closes the
 * port or reaches the other end. Usage: no_read_write PORT */
#define _GNU_SOURCE
#include "common.h"
#include <fcntl.h>
#include <sys/xattr.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/uio.h>

static void
transfers(int fd)
{
	char bytes[64] = "not a message";
	struct iovec v = {bytes, sizeof(bytes)};
	struct sockaddr_storage addr;
	struct msghdr m = { 0 };
	socklen_t len = sizeof(addr);
	int value = 0;

	memset(&addr, 0, sizeof(addr));
	m.msg_iov = &v;
	m.msg_iovlen = 1;
	REFUSED(EINVAL, read(fd, bytes, sizeof(bytes)));
	REFUSED(EINVAL, read(fd, bytes, 0));
	REFUSED(EINVAL, write(fd, bytes, sizeof(bytes)));
	REFUSED(EINVAL, write(fd, bytes, 0));
	REFUSED(EINVAL, readv(fd, &v, 1));
	REFUSED(EINVAL, writev(fd, &v, 1));
	REFUSED(EINVAL, pread(fd, bytes, sizeof(bytes), 0));
	REFUSED(EINVAL, pwrite(fd, bytes, sizeof(bytes), 0));
	REFUSED(EINVAL, preadv(fd, &v, 1, 0));
	REFUSED(EINVAL, pwritev(fd, &v, 1, 0));
	REFUSED(ENOTSOCK, send(fd, bytes, sizeof(bytes), 0));
	REFUSED(ENOTSOCK, sendto(fd, bytes, sizeof(bytes), 0, NULL, 0));
	REFUSED(ENOTSOCK, sendmsg(fd, &m, 0));
	REFUSED(ENOTSOCK, recv(fd, bytes, sizeof(bytes), 0));
	REFUSED(ENOTSOCK, recvfrom(fd, bytes, sizeof(bytes), 0, NULL, NULL));
	REFUSED(ENOTSOCK, recvmsg(fd, &m, 0));
	REFUSED(ENOTSOCK, shutdown(fd, SHUT_RDWR));
	REFUSED(ENOTSOCK, getsockname(fd, (struct sockaddr *)&addr, &len));
	REFUSED(ENOTSOCK, getpeername(fd, (struct sockaddr *)&addr, &len));
	REFUSED(ENOTSOCK, bind(fd, (struct sockaddr *)&addr, sizeof(addr)));
	len = sizeof(value);
	REFUSED(ENOTSOCK, getsockopt(fd, SOL_SOCKET, SO_TYPE, &value, &len));
	REFUSED(ENOTSOCK, setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &value, sizeof(value)));
	REFUSED(ESPIPE, lseek(fd, 0, SEEK_CUR));
	REFUSED(EINVAL, ftruncate(fd, 4096));
	REFUSED(EINVAL, fsync(fd));
}

static void
requests(int fd)
{
	char space[256];
	int on = 1, flags;
	struct stat s;

	memset(space, 0, sizeof(space));
	REFUSED(EOPNOTSUPP, ioctl(fd, FIONREAD, &on));
	REFUSED(EOPNOTSUPP, ioctl(fd, 0x5401 /* TCGETS */, space));
	REFUSED(EOPNOTSUPP, ioctl(fd, 0x8915 /* SIOCGIFADDR */, space));
	REFUSED(EOPNOTSUPP, ioctl(fd, 0xdeadbeef, space));
	REFUSED(EINVAL, ioctl(fd, NIOCCTRL, NULL));
	REFUSED(EINVAL, ioctl(fd, NIOCREGIF, NULL));
	REFUSED(EINVAL, ioctl(fd, NIOCGINFO, NULL));
	CHECK(isatty(fd) == 0, "no terminal");
	CHECK(fstat(fd, &s) == 0 && S_ISCHR(s.st_mode), "a character device");
	flags = fcntl(fd, F_GETFL);
	CHECK(flags >= 0 && (flags & O_ACCMODE) == O_RDWR && !(flags & O_NONBLOCK), "flags %o", flags);
	CHECK(fcntl(fd, F_SETFL, flags | O_NONBLOCK) == 0 && fcntl(fd, F_GETFL) & O_NONBLOCK, "O_NONBLOCK");
	CHECK(ioctl(fd, NIOCTXSYNC, NULL) == 0 && poll_for(fd, POLLOUT, 1000) == POLLOUT, "means nothing here");
	on = 0;
	CHECK(ioctl(fd, FIONBIO, &on) == 0 && !(fcntl(fd, F_GETFL) & O_NONBLOCK), "FIONBIO");
	CHECK(ioctl(fd, FIOCLEX) == 0 && fcntl(fd, F_GETFD) == FD_CLOEXEC && ioctl(fd, FIONCLEX) == 0, "FIOCLEX");
}

/* Other descriptors are not affected. */
static void
others(void)
{
	char bytes[4];
	int p[2], s[2];

	CHECK(pipe(p) == 0 && write(p[1], "abcd", 4) == 4 && read(p[0], bytes, 4) == 4, "pipe");
	CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, s) == 0 && send(s[0], "abcd", 4, 0) == 4, "socket");
	CHECK(recv(s[1], bytes, 4, 0) == 4 && memcmp(bytes, "abcd", 4) == 0, "what was sent");
	close(p[0]);
	close(p[1]);
	close(s[0]);
	close(s[1]);
}

/* Programs may check for the device, and for their access to it, before they open it. */
static void
is_there(void)
{
	const char *name = "/dev/netmap";
	struct statx x;
	struct stat s;

	CHECK(stat(name, &s) == 0 && S_ISCHR(s.st_mode), "stat");
	CHECK(lstat(name, &s) == 0 && S_ISCHR(s.st_mode), "lstat");
	CHECK(fstatat(AT_FDCWD, name, &s, 0) == 0 && (s.st_mode & 0666) == 0666, "fstatat");
	CHECK(statx(AT_FDCWD, name, 0, STATX_BASIC_STATS, &x) == 0 && S_ISCHR(x.stx_mode), "statx");
	CHECK(access(name, R_OK | W_OK) == 0 && faccessat(AT_FDCWD, name, R_OK, AT_EACCESS) == 0, "access");
	CHECK(eaccess(name, W_OK) == 0 && access("/dev/netmap2", F_OK) < 0 && errno == ENOENT, "others are not");
	CHECK(getxattr(name, "system.posix_acl_access", NULL, 0) < 0 && errno != ENOENT, "its access control list");
}

int
main(int argc, char **argv)
{
	struct port p;
	int i, copy;

	CHECK(argc == 2, "usage");
	is_there();
	i = device();
	transfers(i);
	close(i);
	p = open_port(argv[1]);
	for (i = 0; i < 100; i++)
		transfers(p.fd);
	CHECK((copy = dup(p.fd)) >= 0, "dup");
	transfers(copy);
	close(copy);
	requests(p.fd);
	others();
	CHECK(ioctl(p.fd, NIOCTXSYNC, NULL) == 0 && ioctl(p.fd, NIOCRXSYNC, NULL) == 0, "the port is as it was");
	copy = device();
	CHECK(request(copy, argv[1], NETMAP_REQ_REGISTER, &p.reg) == 0, "and in the daemon, too");
	close(copy);
	close_port(&p);
	return 0;
}
