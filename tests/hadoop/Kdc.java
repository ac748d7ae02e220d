import java.net.InetAddress;
import java.net.ServerSocket;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Arrays;

import org.apache.kerby.kerberos.kerb.server.KdcConfigKey;
import org.apache.kerby.kerberos.kerb.server.SimpleKdcServer;

/**
 * A Kerberos key distribution center on the loopback interface.
 *
 * Arguments: a folder, the name of a realm, how many seconds tickets are valid, and principals without the realm. The folder gets a krb5.conf, and for each
 * principal a keytab that is named after its first part, and a ticket cache as kinit writes it if it has no second
 * part. It prints "ready" when it answers, and ends with its standard input.
 */
public class Kdc {
    public static void main(String[] arguments) throws Exception {
        Path folder = Path.of(arguments[0]);
        String realm = arguments[1];
        int port = freePort();
        SimpleKdcServer kdc = new SimpleKdcServer();
        // Kerby writes a krb5.conf of its own there.
        kdc.setWorkDir(Files.createDirectories(folder.resolve("kdc")).toFile());
        kdc.setKdcHost("127.0.0.1");
        kdc.setKdcRealm(realm);
        kdc.setKdcTcpPort(port);
        kdc.setAllowUdp(false);
        long seconds = Long.parseLong(arguments[2]);
        kdc.getKdcConfig().setLong(KdcConfigKey.MAXIMUM_TICKET_LIFETIME, seconds);
        kdc.getKdcConfig().setLong(KdcConfigKey.MINIMUM_TICKET_LIFETIME, seconds);
        kdc.init();
        kdc.start();
        Files.writeString(folder.resolve("krb5.conf"), configuration(realm, port));
        for (String principal : Arrays.asList(arguments).subList(3, arguments.length)) {
            String name = principal.split("/")[0];
            Path keytab = folder.resolve(name + ".keytab");
            kdc.createAndExportPrincipals(keytab.toFile(), principal);
            if (name.equals(principal)) {
                var ticket = kdc.getKrbClient().requestTgt(principal + "@" + realm, keytab.toFile());
                kdc.getKrbClient().storeTicket(ticket, folder.resolve(name + ".ccache").toFile());
            }
        }
        System.out.println("ready");
        System.in.transferTo(System.out);
        kdc.stop();
        System.exit(0);
    }

    private static int freePort() throws Exception {
        try (ServerSocket socket = new ServerSocket(0, 1, InetAddress.getByName("127.0.0.1"))) {
            return socket.getLocalPort();
        }
    }

    private static String configuration(String realm, int port) {
        return """
                [libdefaults]
                default_realm = %1$s
                udp_preference_limit = 1
                dns_lookup_kdc = false
                dns_lookup_realm = false
                [realms]
                %1$s = {
                  kdc = 127.0.0.1:%2$d
                }
                [domain_realm]
                localhost = %1$s
                """.formatted(realm, port);
    }
}
