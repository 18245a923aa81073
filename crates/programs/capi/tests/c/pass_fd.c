/* A process that is older than the port receives its descriptor over a socket, maps it and receives frames. Usage: pass_fd FROM TO */
#include "common.h"
#include <sys/socket.h>
#include <sys/wait.h>

#define COUNT 2000u

struct note {
	uint64_t memsize, offset;
};

static void
send_fd(int sock, int fd, struct note *n)
{
	char space[CMSG_SPACE(sizeof(int))];
	struct iovec iov = {n, sizeof(*n)};
	struct msghdr m = { 0 };
	struct cmsghdr *c;

	memset(space, 0, sizeof(space));
	m.msg_iov = &iov;
	m.msg_iovlen = 1;
	m.msg_control = space;
	m.msg_controllen = sizeof(space);
	c = CMSG_FIRSTHDR(&m);
	c->cmsg_level = SOL_SOCKET;
	c->cmsg_type = SCM_RIGHTS;
	c->cmsg_len = CMSG_LEN(sizeof(int));
	memcpy(CMSG_DATA(c), &fd, sizeof(int));
	CHECK(sendmsg(sock, &m, 0) == (ssize_t)sizeof(*n), "sendmsg");
}

static int
receive_fd(int sock, struct note *n)
{
	char space[CMSG_SPACE(sizeof(int))];
	struct iovec iov = {n, sizeof(*n)};
	struct msghdr m = { .msg_iov = &iov, .msg_iovlen = 1, .msg_control = space, .msg_controllen = sizeof(space) };
	int fd;

	CHECK(recvmsg(sock, &m, 0) == (ssize_t)sizeof(*n), "recvmsg");
	CHECK(CMSG_FIRSTHDR(&m) != NULL, "a descriptor came");
	memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&m)), sizeof(int));
	return fd;
}

static void
receiver(int sock)
{
	struct note n;
	struct port p = { .fd = receive_fd(sock, &n) };
	uint32_t got = 0;

	p.mem = mmap(NULL, n.memsize, PROT_READ | PROT_WRITE, MAP_SHARED, p.fd, 0);
	CHECK(p.mem != MAP_FAILED, "mmap of a descriptor that came over a socket");
	p.nifp = NETMAP_IF(p.mem, n.offset);
	CHECK(p.nifp->ni_version == NETMAP_API, "version %u", p.nifp->ni_version);
	CHECK(write(sock, "r", 1) == 1, "ready");
	while (got < COUNT) {
		CHECK(poll_for(p.fd, POLLIN, 5000) & POLLIN, "%u frames came", got);
		take_frames(NETMAP_RXRING(p.nifp, 0), &got);
	}
	exit(0);
}

int
main(int argc, char **argv)
{
	uint32_t sent = 0;
	struct port from, to;
	struct note n;
	int sock[2], status = 0;
	char c;
	pid_t child;

	CHECK(argc == 3, "two ports");
	alarm(30);
	CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, sock) == 0, "socketpair");
	child = fork();
	CHECK(child >= 0, "fork");
	if (child == 0)
		receiver(sock[1]);
	to = open_port(argv[2]);
	from = open_port(argv[1]);
	n.memsize = to.reg.nr_memsize;
	n.offset = to.reg.nr_offset;
	send_fd(sock[0], to.fd, &n);
	/* From here on only the receiver's copy keeps the port open. */
	close_port(&to);
	CHECK(read(sock[0], &c, 1) == 1, "the receiver is ready");
	while (sent < COUNT) {
		put_frames(NETMAP_TXRING(from.nifp, 0), &sent, sent + 50);
		CHECK(poll_for(from.fd, POLLOUT, 5000) & POLLOUT, "room");
		usleep(500);
	}
	CHECK(ioctl(from.fd, NIOCTXSYNC, NULL) == 0, "txsync");
	CHECK(waitpid(child, &status, 0) == child && status == 0, "the receiver's end: %d", status);
	return 0;
}
