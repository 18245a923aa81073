/* Packet sockets on a port: netdevice(7)'s ioctls, and every way to send. Usage: packet_socket FROM TO */
#define _GNU_SOURCE
#include "common.h"
#include <net/if.h>
#include <linux/if_packet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/uio.h>

static struct port to;
static uint32_t next_seq;

static void
arrived(void)
{
	struct netmap_ring *r = NETMAP_RXRING(to.nifp, 0);
	uint32_t got = next_seq - 1;

	while (got < next_seq) {
		CHECK(poll_for(to.fd, POLLIN, 5000) & POLLIN, "frame %u came", got);
		take_frames(r, &got);
	}
}

static char *
frame(void)
{
	static char bytes[FRAME];

	fill(bytes, FRAME, next_seq++);
	return bytes;
}

static int
socket_of(int type)
{
	int fd = socket(AF_PACKET, type, 0);

	if (fd < 0 && errno == EPERM) {
		fprintf(stderr, "skipped: no right to open packet sockets\n");
		exit(77);
	}
	CHECK(fd >= 0, "socket");
	return fd;
}

static struct ifreq
named(const char *name)
{
	struct ifreq r = { 0 };

	strncpy(r.ifr_name, name, IFNAMSIZ - 1);
	return r;
}

static int
described(const char *name, int fd)
{
	struct ifreq r = named(name);
	char text[IF_NAMESIZE];
	int index;

	CHECK(ioctl(fd, SIOCGIFINDEX, &r) == 0, "index");
	index = r.ifr_ifindex;
	CHECK(index > 0 && (int)if_nametoindex(name) == index, "%d", index);
	CHECK(if_indextoname(index, text) && strcmp(text, name) == 0, "%s", text);
	r = named("");
	r.ifr_ifindex = index;
	CHECK(ioctl(fd, SIOCGIFNAME, &r) == 0 && strcmp(r.ifr_name, name) == 0, "%s", r.ifr_name);
	r = named(name);
	CHECK(ioctl(fd, SIOCGIFHWADDR, &r) == 0 && r.ifr_hwaddr.sa_family == 1, "Ethernet");
	CHECK((r.ifr_hwaddr.sa_data[0] & 3) == 2, "a local unicast address");
	CHECK(ioctl(fd, SIOCGIFFLAGS, &r) == 0 && (r.ifr_flags & (IFF_UP | IFF_RUNNING)) == (IFF_UP | IFF_RUNNING), "flags");
	CHECK(ioctl(fd, SIOCGIFMTU, &r) == 0 && r.ifr_mtu == 1500, "MTU");
	CHECK(ioctl(fd, SIOCGIFADDR, &r) == -1 && errno == EADDRNOTAVAIL, "no address");
	r = named("no-such-one");
	CHECK(ioctl(fd, SIOCGIFINDEX, &r) == -1 && errno == ENODEV, "not ours, and not there");
	r = named("lo");
	CHECK(ioctl(fd, SIOCGIFINDEX, &r) == 0 && r.ifr_ifindex == (int)if_nametoindex("lo"), "not ours");
	CHECK(ioctl(fd, SIOCGIFINDEX, (void *)16) == -1 && errno == EFAULT, "a wild pointer");
	return index;
}

static void
sent_to(int fd, struct sockaddr_ll *address)
{
	struct iovec parts[2];
	struct mmsghdr m[2];
	char *bytes;
	int i;

	bytes = frame();
	CHECK(sendto(fd, bytes, FRAME, 0, (void *)address, sizeof(*address)) == FRAME, "sendto");
	arrived();
	bytes = frame();
	memset(m, 0, sizeof(m));
	parts[0] = (struct iovec){ bytes, 14 };
	parts[1] = (struct iovec){ bytes + 14, FRAME - 14 };
	for (i = 0; i < 2; i++) {
		m[i].msg_hdr.msg_name = address;
		m[i].msg_hdr.msg_namelen = sizeof(*address);
		m[i].msg_hdr.msg_iov = parts;
		m[i].msg_hdr.msg_iovlen = 2;
	}
	CHECK(sendmsg(fd, &m[0].msg_hdr, 0) == FRAME, "sendmsg");
	arrived();
	fill(bytes, FRAME, next_seq++);
	CHECK(sendmmsg(fd, m, 1, 0) == 1 && m[0].msg_len == FRAME, "sendmmsg");
	arrived();
}

static void
sent_bound(int fd, struct sockaddr_ll *address)
{
	struct iovec parts[2];
	char *bytes;
	int twin;

	CHECK(send(fd, "", 1, 0) == -1, "not bound yet");
	CHECK(bind(fd, (void *)address, sizeof(*address)) == 0, "bind");
	CHECK(send(fd, frame(), FRAME, 0) == FRAME, "send");
	arrived();
	CHECK(write(fd, frame(), FRAME) == FRAME, "write");
	arrived();
	bytes = frame();
	parts[0] = (struct iovec){ bytes, 1 };
	parts[1] = (struct iovec){ bytes + 1, FRAME - 1 };
	CHECK(writev(fd, parts, 2) == FRAME, "writev");
	arrived();
	twin = dup(fd);
	CHECK(close(fd) == 0 && write(twin, frame(), FRAME) == FRAME, "a duplicate");
	arrived();
	CHECK(write(twin, frame(), 0) == -1 && errno == EINVAL, "an empty frame");
	CHECK(poll_for(twin, POLLIN, 0) == 0, "it hears nothing");
	close(twin);
}

/* Frames in a socket's rings in memory would go nowhere: such a socket is refused, set up before or after the binding. */
static void
mapped(struct sockaddr_ll *address)
{
	struct tpacket_req ring = { .tp_block_size = 4096, .tp_block_nr = 1, .tp_frame_size = 2048, .tp_frame_nr = 2 };
	int kinds[] = { PACKET_TX_RING, PACKET_RX_RING };
	struct tpacket_req none = { 0 };
	int fd, i;

	for (i = 0; i < 2; i++) {
		fd = socket_of(SOCK_RAW);
		CHECK(setsockopt(fd, SOL_PACKET, kinds[i], &ring, sizeof(ring)) == 0, "a ring");
		CHECK(bind(fd, (void *)address, sizeof(*address)) == -1 && errno == EOPNOTSUPP, "bound with a ring");
		CHECK(setsockopt(fd, SOL_PACKET, kinds[i], &none, sizeof(none)) == 0, "no ring any more");
		CHECK(bind(fd, (void *)address, sizeof(*address)) == 0, "without one");
		CHECK(setsockopt(fd, SOL_PACKET, kinds[i], &ring, sizeof(ring)) == -1 && errno == EOPNOTSUPP, "too late");
		close(fd);
	}
}

int
main(int argc, char **argv)
{
	struct sockaddr_ll address = { .sll_family = AF_PACKET };
	int fd, cooked;

	CHECK(argc == 3, "two ports");
	alarm(30);
	to = open_port(argv[2]);
	fd = socket_of(SOCK_RAW);
	address.sll_ifindex = described(argv[1], fd);
	cooked = socket_of(SOCK_DGRAM);
	CHECK(bind(cooked, (void *)&address, sizeof(address)) == -1 && errno == EOPNOTSUPP, "headers are the program's");
	close(cooked);
	mapped(&address);
	sent_to(fd, &address);
	sent_bound(fd, &address);
	close_port(&to);
	return 0;
}
