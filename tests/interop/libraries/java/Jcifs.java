import java.io.InputStream;
import java.io.OutputStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.Properties;
import java.util.stream.Collectors;
import jcifs.CIFSContext;
import jcifs.config.PropertyConfiguration;
import jcifs.context.BaseContext;
import jcifs.smb.NtlmPasswordAuthenticator;
import jcifs.smb.SmbFile;
import jcifs.smb.SmbRandomAccessFile;

/** jcifs-ng. */
class Jcifs extends Driver {
    private SmbFile share;

    private SmbFile file(String name) throws Exception {
        return new SmbFile(share, name.replace('\\', '/'));
    }

    private SmbFile folder(String name) throws Exception {
        return file(name + "/");
    }

    private String write(String name, String local, boolean append) throws Exception {
        try (OutputStream to = file(name).openOutputStream(append)) {
            Files.copy(Path.of(local), to);
        }
        return "";
    }

    @Override
    String act(String[] part) throws Exception {
        switch (part[0]) {
            case "connect": {
                Properties wanted = new Properties();
                wanted.setProperty("jcifs.smb.client.minVersion", "SMB202");
                wanted.setProperty("jcifs.smb.client.maxVersion", "SMB311");
                wanted.setProperty("jcifs.smb.client.dfs.disabled", "true");
                CIFSContext context = new BaseContext(new PropertyConfiguration(wanted))
                    .withCredentials(new NtlmPasswordAuthenticator("", part[3], part[4]));
                share = new SmbFile("smb://127.0.0.1:" + part[1] + "/" + part[2] + "/", context);
                share.connect();
                return "";
            }
            case "mkdir":
                folder(part[1]).mkdir();
                return "";
            case "put":
                return write(part[1], part[2], false);
            case "append":
                return write(part[1], part[2], true);
            case "get":
                try (InputStream from = file(part[1]).openInputStream();
                     OutputStream to = Files.newOutputStream(Path.of(part[2]))) {
                    from.transferTo(to);
                }
                return "";
            case "delete":
                file(part[1]).delete();
                return "";
            case "rename":
                file(part[1]).renameTo(file(part[2]));
                return "";
            case "list":
                return Arrays.stream(folder(part[1]).listFiles(part[2])).map(found -> found.getName().replace("/", ""))
                    .collect(Collectors.joining("\t"));
            case "stat":
                return file(part[1]).length() + "\t" + file(part[1]).getLastModified() / 1000;
            case "settime":
                file(part[1]).setLastModified(Long.parseLong(part[2]) * 1000);
                return "";
            case "truncate":
                try (SmbRandomAccessFile file = file(part[1]).openRandomAccess("rw")) {
                    file.setLength(Long.parseLong(part[2]));
                }
                return "";
            case "security":
                file(part[1]).getSecurity();
                return file(part[1]).getOwnerUser(false).toString();
            default:
                // It removes folders with all that is in them, and lists shares on port 445 only.
                return "absent";
        }
    }
}
