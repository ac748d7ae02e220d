import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.OutputStream;
import java.nio.file.Files;
import java.nio.file.Path;

import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.SafeModeAction;
import org.apache.hadoop.hdfs.HdfsConfiguration;
import org.apache.hadoop.hdfs.MiniDFSCluster;
import org.apache.hadoop.security.UserGroupInformation;
import org.apache.hadoop.yarn.conf.YarnConfiguration;
import org.apache.hadoop.yarn.server.MiniYARNCluster;

/**
 * A NameNode with one DataNode, and with a number of NodeManagers a YARN, in one process.
 *
 * Arguments: a folder for everything that is written, the number of NodeManagers (0: no YARN), the class path
 * of YARN's containers, and with Kerberos a realm and the folder of its keytabs: hdfs.keytab of hdfs/localhost,
 * whom all daemons are, and HTTP.keytab of HTTP/localhost. There the user penstock has a home in HDFS.
 * It says "ready ADDRESS" when HDFS (and YARN) can be used; the client's configuration is then in the folder
 * conf. Lines of standard input are orders, each answered by "done": "safemode on", "safemode off",
 * "stop namenode", "start namenode", "stop datanode", "start datanode". It ends with its standard input.
 */
public class MiniCluster {
    public static void main(String[] arguments) throws Exception {
        Path folder = Path.of(arguments[0]);
        int managers = Integer.parseInt(arguments[1]);
        Configuration hdfs = new HdfsConfiguration();
        hdfs.set("hdfs.minidfs.basedir", folder.resolve("hdfs").toString());
        // Whoever runs the tests may do everything; another user is refused, as on a real cluster.
        hdfs.setBoolean("dfs.permissions.enabled", true);
        // A lease that an interrupted writer left behind must not hold up a test.
        hdfs.setInt("ipc.client.connect.max.retries", 2);
        Configuration client = new Configuration(false);
        if (arguments.length > 3) {
            secure(hdfs, client, arguments[3], Path.of(arguments[4]));
        }
        MiniDFSCluster files = new MiniDFSCluster.Builder(hdfs).numDataNodes(1).build();
        files.waitActive();
        String address = files.getFileSystem().getUri().toString();
        client.set("fs.defaultFS", address);
        if (arguments.length > 3) {
            makeHome(files.getFileSystem(), "penstock");
        }
        MiniYARNCluster yarn = null;
        if (managers > 0) {
            // What fetches the files of a container reads no other configuration than that of the class path.
            write(client, folder.resolve("conf"));
            yarn = yarnOn(hdfs, address, managers, arguments[2]);
            client = new Configuration(yarn.getConfig());
            // A class of the tests of Hadoop, which containers do not have.
            client.unset("net.topology.node.switch.mapping.impl");
        }
        write(client, folder.resolve("conf"));
        System.out.println("ready " + address);
        obey(files);
        if (yarn != null) {
            yarn.stop();
        }
        files.shutdown(true);
        System.exit(0);
    }

    /** Let HDFS, and its clients, authenticate everybody by Kerberos. */
    private static void secure(Configuration hdfs, Configuration client, String realm, Path keytabs) {
        String service = "hdfs/localhost@" + realm;
        for (Configuration each : new Configuration[] {hdfs, client}) {
            each.set("hadoop.security.authentication", "kerberos");
            each.set("dfs.namenode.kerberos.principal", service);
            each.set("dfs.data.transfer.protection", "authentication");
        }
        hdfs.set("dfs.datanode.kerberos.principal", service);
        for (String daemon : new String[] {"namenode", "datanode"}) {
            hdfs.set("dfs." + daemon + ".keytab.file", keytabs.resolve("hdfs.keytab").toString());
        }
        hdfs.set("dfs.web.authentication.kerberos.principal", "HTTP/localhost@" + realm);
        hdfs.set("dfs.web.authentication.kerberos.keytab", keytabs.resolve("HTTP.keytab").toString());
        hdfs.setBoolean("dfs.block.access.token.enable", true);
        // The mini YARN logs nobody in: its daemons are who the NameNode is.
        hdfs.set("yarn.resourcemanager.principal", service);
        hdfs.set("yarn.nodemanager.principal", service);
        // The DataNode has no port below 1024, and its web pages no TLS.
        hdfs.setBoolean("ignore.secure.ports.for.testing", true);
        UserGroupInformation.setConfiguration(hdfs);
    }

    /** Make a folder of a user who is not the one of the NameNode, and so may write nowhere else. */
    private static void makeHome(FileSystem files, String user) throws Exception {
        org.apache.hadoop.fs.Path home = new org.apache.hadoop.fs.Path("/user", user);
        files.mkdirs(home);
        files.setOwner(home, user, user);
    }

    private static MiniYARNCluster yarnOn(Configuration hdfs, String address, int managers, String classPath) {
        YarnConfiguration conf = new YarnConfiguration(hdfs);
        conf.set("fs.defaultFS", address);
        // The capacity scheduler finds no queues.
        conf.set("yarn.resourcemanager.scheduler.class",
                "org.apache.hadoop.yarn.server.resourcemanager.scheduler.fifo.FifoScheduler");
        conf.setInt("yarn.nodemanager.resource.memory-mb", 8192);
        conf.setInt("yarn.nodemanager.resource.cpu-vcores", 8);
        conf.setInt("yarn.scheduler.minimum-allocation-mb", 128);
        conf.setBoolean("yarn.nodemanager.vmem-check-enabled", false);
        conf.setBoolean("yarn.nodemanager.disk-health-checker.enable", false);
        conf.set("yarn.application.classpath", classPath);
        MiniYARNCluster yarn = new MiniYARNCluster("penstock", 1, managers, 1, 1);
        yarn.init(conf);
        yarn.start();
        return yarn;
    }

    private static void write(Configuration client, Path folder) throws Exception {
        Files.createDirectories(folder);
        for (String name : new String[] {"core-site.xml", "yarn-site.xml"}) {
            try (OutputStream out = Files.newOutputStream(folder.resolve(name))) {
                client.writeXml(out);
            }
        }
    }

    private static void obey(MiniDFSCluster files) throws Exception {
        BufferedReader orders = new BufferedReader(new InputStreamReader(System.in));
        MiniDFSCluster.DataNodeProperties stopped = null;
        for (String order = orders.readLine(); order != null; order = orders.readLine()) {
            switch (order) {
                case "safemode on" -> files.getFileSystem().setSafeMode(SafeModeAction.ENTER);
                case "safemode off" -> files.getFileSystem().setSafeMode(SafeModeAction.LEAVE);
                case "stop namenode" -> files.shutdownNameNodes();
                case "start namenode" -> files.restartNameNode(0, true);
                case "stop datanode" -> stopped = files.stopDataNode(0);
                case "start datanode" -> {
                    files.restartDataNode(stopped, true);
                    files.waitActive();
                }
                default -> throw new IllegalArgumentException(order);
            }
            System.out.println("done");
        }
    }
}
