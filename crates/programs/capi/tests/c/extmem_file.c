/* extmem in a file that several processes have mapped: each accesses the region through its own mapping and can have ports there; the region
 * exists as long as one of the ports; a process that truncates the file harms no other. Usage: extmem_file SWITCH */
#define _GNU_SOURCE
#include "common.h"
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>

#define SIZE (16u << 20)
/* The region need not begin where the file does. */
#define SKIP (64u << 10)

static char ports[4][64];

/* The data about a port that one process sends to the other. */
struct note {
	uint64_t offset;
	uint32_t mem_id;
};

static void
pass(int sock, int fd, struct note n)
{
	char space[CMSG_SPACE(sizeof(int))];
	struct iovec iov = {&n, sizeof(n)};
	struct msghdr m = { 0 };

	memset(space, 0, sizeof(space));
	m.msg_iov = &iov;
	m.msg_iovlen = 1;
	if (fd >= 0) {
		struct cmsghdr *c;

		m.msg_control = space;
		m.msg_controllen = sizeof(space);
		c = CMSG_FIRSTHDR(&m);
		c->cmsg_level = SOL_SOCKET;
		c->cmsg_type = SCM_RIGHTS;
		c->cmsg_len = CMSG_LEN(sizeof(int));
		memcpy(CMSG_DATA(c), &fd, sizeof(int));
	}
	CHECK(sendmsg(sock, &m, MSG_NOSIGNAL) == (ssize_t)sizeof(n), "sendmsg");
}

static struct note
hear(int sock, int *fd)
{
	struct note n;
	char space[CMSG_SPACE(sizeof(int))];
	struct iovec iov = {&n, sizeof(n)};
	struct msghdr m = { .msg_iov = &iov, .msg_iovlen = 1, .msg_control = space, .msg_controllen = sizeof(space) };

	CHECK(poll_for(sock, POLLIN, 10000) & POLLIN, "the other process is silent");
	CHECK(recvmsg(sock, &m, 0) == (ssize_t)sizeof(n), "recvmsg");
	if (fd) {
		CHECK(CMSG_FIRSTHDR(&m) != NULL, "a descriptor came");
		memcpy(fd, CMSG_DATA(CMSG_FIRSTHDR(&m)), sizeof(int));
	}
	return n;
}

static char *
map(int file)
{
	char *mem = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, file, SKIP);

	CHECK(mem != MAP_FAILED, "mmap");
	return mem;
}

static int
memory_file(void)
{
	int fd = memfd_create("extmem", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	CHECK(fd >= 0 && ftruncate(fd, SKIP + SIZE) == 0, "memfd");
	return fd;
}

static struct port
open_there(const char *name, char *mem, uint64_t size)
{
	struct nmreq_opt_extmem e = { .nro_opt.nro_reqtype = NETMAP_REQ_OPT_EXTMEM, .nro_usrptr = (uintptr_t)mem };
	struct nmreq_header h;
	struct port p = { 0 };

	e.nro_info.nr_memsize = size;
	e.nro_info.nr_if_pool_objtotal = 16;
	e.nro_info.nr_ring_pool_objtotal = 16;
	p.reg.nr_mode = NR_REG_ALL_NIC;
	p.reg.nr_tx_slots = p.reg.nr_rx_slots = 256;
	p.fd = device();
	header(&h, name, NETMAP_REQ_REGISTER, &p.reg);
	h.nr_options = (uintptr_t)&e;
	CHECK(ioctl(p.fd, NIOCCTRL, &h) == 0 && e.nro_opt.nro_status == 0, "register %s", name);
	CHECK(p.reg.nr_memsize <= size, "no more than there is: %llu", (unsigned long long)p.reg.nr_memsize);
	p.mem = mem;
	p.nifp = NETMAP_IF(mem, p.reg.nr_offset);
	CHECK(p.nifp->ni_version == NETMAP_API, "%s is in our memory", name);
	return p;
}

/* A port elsewhere with rings of the same size. */
static struct port
plain_port(const char *name)
{
	struct nmreq_register reg = { .nr_mode = NR_REG_ALL_NIC };

	reg.nr_tx_slots = reg.nr_rx_slots = 256;
	return open_port_with(name, reg);
}

static struct note
note_of(const struct port *p)
{
	struct note n = { .offset = p->reg.nr_offset, .mem_id = p->reg.nr_mem_id };

	return n;
}

/* The other process: receives the file, finds the first port's rings in it, and opens a port beside it. */
static void
other(int sock, int leaves_first)
{
	int file;
	struct note first = hear(sock, &file);
	char *mem = map(file);
	struct netmap_if *nifp = NETMAP_IF(mem, first.offset);
	struct port b, plain;
	void *again;
	uint32_t got = 0;

	CHECK(nifp->ni_version == NETMAP_API && nifp->ni_tx_rings == 1, "the first port, in our own mapping");
	CHECK(NETMAP_TXRING(nifp, 0)->num_slots == 256 && NETMAP_TXRING(nifp, 0)->nr_buf_size == 2048, "its rings");
	b = open_there(ports[1], mem, SIZE);
	CHECK(b.reg.nr_mem_id == first.mem_id && b.reg.nr_offset != first.offset, "the same region: %u and %u",
	      b.reg.nr_mem_id, first.mem_id);
	CHECK(nifp->ni_version == NETMAP_API, "the first port is still there");
	/* The descriptor maps the same memory. */
	again = mmap(NULL, b.reg.nr_memsize, PROT_READ | PROT_WRITE, MAP_SHARED, b.fd, 0);
	CHECK(again != MAP_FAILED && NETMAP_IF(again, b.reg.nr_offset)->ni_version == NETMAP_API, "by the descriptor");
	munmap(again, b.reg.nr_memsize);
	pass(sock, -1, note_of(&b));
	while (got < 500) {
		CHECK(poll_for(b.fd, POLLIN, 5000) & POLLIN, "%u frames came", got);
		take_frames(NETMAP_RXRING(b.nifp, 0), &got);
		CHECK(ioctl(b.fd, NIOCRXSYNC, NULL) == 0, "rxsync");
		/* The sender waits for this process. */
		pass(sock, -1, (struct note){got, 0});
	}
	if (leaves_first)
		exit(0);
	hear(sock, NULL);
	/* The first port is gone; ours remains. The last frames were not for us. */
	CHECK(poll_for(b.fd, POLLIN, 5000) & POLLIN, "the frame in our buffer came here, too");
	NETMAP_RXRING(b.nifp, 0)->head = NETMAP_RXRING(b.nifp, 0)->cur = NETMAP_RXRING(b.nifp, 0)->tail;
	CHECK(ioctl(b.fd, NIOCRXSYNC, NULL) == 0, "rxsync");
	plain = plain_port(ports[2]);
	exchange(&b, &plain, 500);
	exchange(&plain, &b, 500);
	exit(0);
}

/* A buffer moves from a ring of the other port to ours, and leaves with a frame. */
static void
swap(struct port *a, struct netmap_if *theirs, struct port *plain)
{
	struct netmap_ring *own = NETMAP_TXRING(a->nifp, 0), *tx = NETMAP_TXRING(theirs, 0);
	struct netmap_ring *rx = NETMAP_RXRING(plain->nifp, 0);
	struct netmap_slot *s = &own->slot[own->head], *t = &tx->slot[tx->head];
	uint32_t buf = t->buf_idx, got = 4711;

	t->buf_idx = s->buf_idx;
	s->buf_idx = buf;
	s->len = FRAME;
	s->flags = NS_BUF_CHANGED;
	t->flags = NS_BUF_CHANGED;
	fill(NETMAP_BUF(tx, buf), FRAME, got);
	own->head = own->cur = nm_ring_next(own, own->head);
	CHECK(ioctl(a->fd, NIOCTXSYNC, NULL) == 0, "txsync");
	CHECK(poll_for(plain->fd, POLLIN, 5000) & POLLIN, "a frame in a buffer of the other port's");
	take_frames(rx, &got);
	CHECK(got == 4712, "one frame");
	CHECK(ioctl(plain->fd, NIOCRXSYNC, NULL) == 0, "rxsync");
}

static void
two_processes(int leaves_first)
{
	int sock[2], file, status;
	uint32_t sent = 0, got = 0;
	struct note n;
	struct port a, plain;
	struct netmap_if *theirs;
	pid_t pid;
	char *mem;

	CHECK(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, sock) == 0, "socketpair");
	/* The process has no access to the file until it receives the descriptor. */
	if ((pid = fork()) == 0) {
		close(sock[0]);
		other(sock[1], leaves_first);
	}
	close(sock[1]);
	file = memory_file();
	mem = map(file);
	a = open_there(ports[0], mem, SIZE);
	pass(sock[0], file, note_of(&a));
	n = hear(sock[0], NULL);
	theirs = NETMAP_IF(mem, n.offset);
	CHECK(theirs->ni_version == NETMAP_API && NETMAP_RXRING(theirs, 0)->num_slots == 256, "their port in our mapping");
	while (got < 500) {
		put_frames(NETMAP_TXRING(a.nifp, 0), &sent, got + 100 < 500 ? got + 100 : 500);
		CHECK(ioctl(a.fd, NIOCTXSYNC, NULL) == 0, "txsync");
		while (got < sent)
			got = (uint32_t)hear(sock[0], NULL).offset;
	}
	if (leaves_first) {
		CHECK(waitpid(pid, &status, 0) == pid && status == 0, "the other process: %x", status);
		plain = plain_port(ports[3]);
		exchange(&a, &plain, 500);
		exchange(&plain, &a, 500);
		close(a.fd);
	} else {
		plain = plain_port(ports[3]);
		swap(&a, theirs, &plain);
		close_port(&plain);
		close(a.fd);
		pass(sock[0], -1, n);
		CHECK(waitpid(pid, &status, 0) == pid && status == 0, "the other process: %x", status);
		plain = plain_port(ports[3]);
	}
	close_port(&plain);
	/* All ports are gone: the next port there gets a new region. */
	a = open_there(ports[0], mem, SIZE);
	CHECK(a.reg.nr_mem_id != n.mem_id, "region %u", a.reg.nr_mem_id);
	close(a.fd);
	munmap(mem, SIZE);
	close(file);
	close(sock[0]);
}

/* The mapping preceded the fork: the child sees frames of the parent's port without a call. */
static void
inherited(void)
{
	int file = memory_file(), sock[2], status;
	char *mem = map(file);
	uint32_t sent = 0;
	struct port a, plain;
	pid_t pid;

	CHECK(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, sock) == 0, "socketpair");
	if ((pid = fork()) == 0) {
		struct netmap_if *nifp = NETMAP_IF(mem, hear(sock[1], NULL).offset);
		struct netmap_ring *rx = NETMAP_RXRING(nifp, 0);

		CHECK(nifp->ni_version == NETMAP_API && rx->num_slots == 256, "the parent's port");
		CHECK(rx->tail == 10 && seq_of(NETMAP_BUF(rx, rx->slot[7].buf_idx)) == 7, "the parent's frames");
		exit(0);
	}
	a = open_there(ports[0], mem, SIZE);
	plain = plain_port(ports[3]);
	put_frames(NETMAP_TXRING(plain.nifp, 0), &sent, 10);
	CHECK(ioctl(plain.fd, NIOCTXSYNC, NULL) == 0, "txsync");
	while (NETMAP_RXRING(a.nifp, 0)->tail != 10)
		CHECK(poll_for(a.fd, POLLIN, 5000) & POLLIN, "frames");
	pass(sock[0], -1, note_of(&a));
	CHECK(waitpid(pid, &status, 0) == pid && status == 0, "the child: %x", status);
	close(a.fd);
	close_port(&plain);
	munmap(mem, SIZE);
	close(file);
	close(sock[0]);
	close(sock[1]);
}

/* A program that truncates its file loses its port, and nothing else is lost. */
static void
cut(void)
{
	int file = memory_file(), sock[2], status;
	struct port b = plain_port(ports[1]), c = plain_port(ports[2]);
	uint32_t sent = 0;
	pid_t pid;

	CHECK(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, sock) == 0, "socketpair");
	if ((pid = fork()) == 0) {
		struct port a = open_there(ports[0], map(file), SIZE);

		CHECK(ftruncate(file, 0) == 0, "the file is the program's");
		pass(sock[1], -1, note_of(&a));
		hear(sock[1], NULL);
		_exit(0);
	}
	hear(sock[0], NULL);
	/* All ports receive these frames, even the port in the lost memory. */
	put_frames(NETMAP_TXRING(b.nifp, 0), &sent, 100);
	CHECK(ioctl(b.fd, NIOCTXSYNC, NULL) == 0, "txsync");
	sent = 0;
	while (sent < 100) {
		CHECK(poll_for(c.fd, POLLIN, 5000) & POLLIN, "%u frames came", sent);
		take_frames(NETMAP_RXRING(c.nifp, 0), &sent);
	}
	CHECK(ioctl(c.fd, NIOCRXSYNC, NULL) == 0, "rxsync");
	exchange(&b, &c, 500);
	pass(sock[0], -1, note_of(&b));
	CHECK(waitpid(pid, &status, 0) == pid && status == 0, "the child: %x", status);
	close_port(&b);
	close_port(&c);
	close(file);
	close(sock[0]);
	close(sock[1]);
}

int
main(int argc, char **argv)
{
	int i;

	CHECK(argc == 2, "usage");
	for (i = 0; i < 4; i++)
		snprintf(ports[i], sizeof(ports[i]), "%.40s:file%d", argv[1], i);
	two_processes(0);
	two_processes(1);
	inherited();
	cut();
	return 0;
}
